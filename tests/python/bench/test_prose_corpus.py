"""The prose corpus of bench/race: its parts come from the whole dictionary."""

from __future__ import annotations

import sys

from places import ROOT

sys.path.insert(0, str(ROOT / "bench" / "race"))

import prose_corpus


def test_pieces_of_the_dictionary_come_from_all_over_the_alphabet() -> None:
    text = "\n\n".join(f"entry {number}" for number in range(20_000))
    found = prose_corpus.pieces(text, 60_000).split("\n\n")
    numbers = [int(entry.split()[1]) for entry in found]
    assert numbers == sorted(set(numbers)) and numbers[-1] > 19_000
    assert 40_000 < len("\n\n".join(found)) < 90_000
