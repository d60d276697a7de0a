"""The files and records of documents, by their numbers among the training documents of a token cache."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mudd_core.config.data import DocumentRule
from mudd_core.data.documents.origins import Place
from mudd_core.data.documents.source import TextFiles, Texts
from mudd_core.data.sources.boundaries import cut_text
from mudd_core.data.sources.corpus import is_held_out

MOST_READ = 1 << 32  # bytes of text that are read to find some documents


def places_in(
    texts: Texts, ends: Sequence[int], numbers: Collection[int], *, hold_out: bool
) -> dict[int, Place]:
    """Return the places of documents by their numbers. A file is read to find the records of its documents.

    ends: 0, then the number of training documents up to the end of each file. hold_out: documents are held out by their
    hashes. Return an empty dict for documents of a reader function.
    """
    if not isinstance(texts, TextFiles) or len(texts.files) != len(ends) - 1:
        return {}
    by_file = defaultdict[int, list[int]](list)
    for number in numbers:
        by_file[bisect_right(ends, number) - 1].append(number)
    found: dict[int, Place] = {}
    for file, inside in by_file.items():
        one = replace(texts, files=(texts.files[file],))
        places = places_of_file(one, ends[file + 1] - ends[file], hold_out=hold_out)
        for number in inside:
            found[number] = places[number - ends[file]] if places else Place(one.files[0])
    return found


def places_of_file(texts: TextFiles, count: int, *, hold_out: bool) -> list[Place]:
    """Return the place of each training document in one file; an empty list if they are unknown.

    count: the number of training documents that this file must have.
    """
    (file,) = texts.files
    is_whole = texts.format.holds == "text" and not texts.cuts
    if is_whole or texts.bad.drops or file.stat().st_size > MOST_READ:
        return []
    found: list[Place] = []
    for place, text in _cut(file, texts.rule) if texts.cuts else _records(texts):
        if not (hold_out and is_held_out(hashlib.sha256(text).digest())):
            found.append(place)
    return found if len(found) == count else []


def _cut(file: Path, rule: DocumentRule) -> Iterator[tuple[Place, bytes]]:
    return ((Place(file, byte=start), text) for start, text in cut_text(file, rule))


def _records(texts: TextFiles) -> Iterator[tuple[Place, bytes]]:
    return ((Place(texts.files[0], number), text) for number, (_, text) in enumerate(texts.texts(), 1))
