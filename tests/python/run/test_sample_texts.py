"""The text of a sample: it ends before the first stop string, or when the model's positions end."""

from __future__ import annotations

import itertools

import pytest

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.config import GPT2Config, SampleConfig
from mudd_core.data.tokenizers.tokenizer import ByteTokenizer
from mudd_core.run.report.sample import StopTexts, write_text


def cut(pieces: tuple[str, ...], stops: list[str]) -> str:
    """Return the output for streamed pieces."""
    stop, written = StopTexts(stops), ""
    for piece in pieces:
        written += stop.take(piece)
        if stop.found:
            return written
    return written + stop.rest()


@pytest.mark.parametrize(
    ("text", "stops", "written"),
    [
        ("one\n\ntwo", ["\n\n"], "one"),
        ("one\ntwo\n", ["\n\n"], "one\ntwo\n"),
        ("aab", ["ab"], "a"),
        ("aaab", ["aab"], "a"),
        ("xabcd", ["abcd", "bc"], "xa"),  # bc is complete first
        ("xabc", ["bc", "abc"], "x"),  # both are complete, so the longer one is used
        ("abab", ["abc"], "abab"),
        ("END", ["END"], ""),
        ("plain", [], "plain"),
    ],
)
def test_the_division_into_pieces_changes_nothing(text: str, stops: list[str], written: str) -> None:
    for places in itertools.product((False, True), repeat=len(text) - 1):
        cuts = [0, *(i for i, place in enumerate(places, 1) if place), len(text)]
        pieces = tuple(text[a:b] for a, b in itertools.pairwise(cuts))
        assert cut(pieces, stops) == written, pieces


def test_only_a_possible_beginning_is_held_back() -> None:
    stop = StopTexts(["\n\n"])
    assert [stop.take("one\n"), stop.take("two"), stop.take("\n")] == ["one", "\ntwo", ""]
    assert (stop.found, stop.rest(), stop.rest()) == (False, "\n", "")


def test_a_model_whose_positions_end_has_no_ring() -> None:
    model = mc.Model(GPT2Config(d_model=8, n_layer=1, n_head=1, vocab_size=257, max_seq_len=8), seed=1)
    settings, written, notes = SampleConfig(max_tokens=20, window="ring"), list[str](), list[str]()
    with pytest.raises(UserError, match=r"needs rotary positions.*; leave sample\.window=ring out"):
        write_text(model, ByteTokenizer(), "ab", settings, written.append)
    assert not written
    write_text(model, ByteTokenizer(), "ab", SampleConfig(max_tokens=20), written.append, notes.append)
    assert len(notes) == 1 and notes[0].endswith("sample.max_tokens=20")


@pytest.mark.parametrize(
    ("generated", "stops", "written"),
    [
        (b"a\xc3", [], "a\ufffd"),
        (b"a\xf0\x9f\x98", ["ab"], "a\ufffd"),
        (b"a\xc3", ["a"], ""),
        (b"a\xc3", ["\ufffd"], "a"),
        (b"\xc3\xa9", [], "\u00e9"),
    ],
)
def test_a_sample_that_ends_inside_a_character_says_so(
    generated: bytes, stops: list[str], written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = mc.Model(GPT2Config(d_model=8, n_layer=1, n_head=1, vocab_size=257, max_seq_len=8), seed=1)
    pieces = list[str]()
    for end in ([], [ByteTokenizer.eos_id]):
        monkeypatch.setattr(model, "generate", lambda ids, end=end, **settings: iter([*generated, *end]))
        pieces.clear()
        text = write_text(model, ByteTokenizer(), "ab", SampleConfig(), pieces.append, stops=stops)
        assert text == "".join(pieces) == written
