"""Count wordings that docs/glossary.md replaces, in comments, messages and pages.

    python tests/prose.py [PLACE...]               print the counts
    python tests/prose.py --check                  exit code 1 if they are above the ratchet
    python tests/prose.py --lines NAME [PLACE...]  print the places of one entry of the glossary, or of `replace` and
                                                   `choose` (its tables), `long` (sentences), `all`
    python tests/prose.py --since REV              the same for lines changed since a commit; the default is `replace`
    python tests/prose.py --write                  lower the ratchet in tests/prose_ratchet.toml to the present counts

The ratchet limits the phrases to replace and the sentences of more than 25 words, for each kind of text.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import prose_texts
from prose_texts import KINDS, Prose

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
RATCHET = ROOT / "tests" / "prose_ratchet.toml"
TABLES = {"replace": "## Wording to replace", "choose": "## Wording to choose"}
LONG = "long"
LONGEST = 25  # words of a sentence
# Code spans, targets of links, HTML tags and half-open ranges are no prose.
_NO_PROSE = re.compile(r"`[^`\n]*`|\]\([^)\n]*\)|<[^>\n]*>|\[[\w ]+, [^\[\]()\n]*\)")
_SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+|\n\s*\n|\n\s*[-*]\s|\s\|\s?")


class Habit(NamedTuple):
    """An entry of the glossary. table: replace or choose."""

    table: str
    phrases: tuple[str, ...]
    write: str

    @property
    def name(self) -> str:
        """Return the first phrase."""
        return self.phrases[0].lstrip("^")


class Hit(NamedTuple):
    """A place with a wording of the glossary or with a long sentence, whose habit is None."""

    file: str
    line: int
    kind: str
    habit: Habit | None
    excerpt: str

    def __str__(self) -> str:
        """Return the line that the command prints."""
        advice = f"{self.habit.name}: {self.habit.write}" if self.habit else "long sentence: split it"
        return f"{self.file}:{self.line}: [{advice}] {self.excerpt}"


def habits(page: str) -> list[Habit]:
    """Read the entries of both tables of the glossary; ValueError if one has none."""
    found = []
    for table, heading in TABLES.items():
        section = page.partition(heading + "\n")[2].partition("\n## ")[0]
        lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
        rows = lines[2:]  # without the head of the table
        if not rows:
            raise ValueError(f"glossary: expected a table below '{heading}', got none")
        found += [Habit(table, tuple(re.findall(r"`([^`]+)`", row[0])), row[1]) for row in rows]
    return found


class PhraseBook:
    """The phrases of all entries, compiled to two expressions."""

    def __init__(self, entries: Iterable[Habit]) -> None:
        """Compile the phrases; those with `^` match at the start of a sentence, with their case."""
        self._by_phrase = {phrase: entry for entry in entries for phrase in entry.phrases}
        inside = sorted((p for p in self._by_phrase if not p.startswith("^")), key=len, reverse=True)
        starts = [p[1:] for p in self._by_phrase if p.startswith("^")]
        words = "|".join(re.escape(p).replace(r"\ ", r"\s+") for p in inside)
        self._inside = re.compile(rf"\b(?:{words})\b", re.IGNORECASE)
        self._starts = re.compile(rf"(?:\A\W*|[.:;(!?]\s*|\n\s*\n\s*)({'|'.join(starts)})\b")

    def find(self, text: str) -> Iterator[tuple[Habit, int]]:
        """Yield each entry that a text uses, and the offset."""
        for found in self._inside.finditer(text):
            yield self._by_phrase[" ".join(found[0].lower().split())], found.start()
        for found in self._starts.finditer(text):
            yield self._by_phrase["^" + found[1]], found.start(1)


def plain(text: str) -> str:
    """Replace code, links and tags in a text by spaces, so that offsets and lines stay."""
    return _NO_PROSE.sub(lambda found: " " * len(found[0]), text)


def hits_of(file: str, prose: Prose, book: PhraseBook) -> Iterator[Hit]:
    """Yield the hits of one text."""
    text = plain(prose.text)
    lines = prose.text.split("\n")
    for habit, offset in book.find(text):
        at = text.count("\n", 0, offset)
        line = min(prose.first + at, prose.last)
        yield Hit(file, line, prose.kind, habit, lines[at].strip()[:110])
    for sentence in _SENTENCE_END.split(text):
        if len(sentence.split()) > LONGEST:
            at = text.count("\n", 0, text.find(sentence))
            line = min(prose.first + at, prose.last)
            yield Hit(file, line, prose.kind, None, " ".join(sentence.split())[:110])


def is_changed(prose: Prose, hit: Hit, changed: set[int]) -> bool:
    """Return True if a hit is in changed lines. One message may span several source lines."""
    if "\n" not in prose.text:
        return any(line in changed for line in range(prose.first, prose.last + 1))
    return hit.line in changed


class Count(NamedTuple):
    """The hits of some files, and their words by kind."""

    hits: list[Hit]
    words: Counter[str]

    def limits(self) -> dict[str, dict[str, int]]:
        """Return the counts that the ratchet limits, by kind."""
        return {
            kind: {
                "replace": sum(
                    h.kind == kind and h.habit is not None and h.habit.table == "replace" for h in self.hits
                ),
                "long": sum(h.kind == kind and h.habit is None for h in self.hits),
            }
            for kind in KINDS
        }


def count(places: list[str], book: PhraseBook, since: str | None = None) -> Count:
    """Count the files below some places, or only their lines changed since a revision."""
    changed = prose_texts.changed_lines(ROOT, since) if since else None
    result = Count([], Counter())
    for file in prose_texts.files(ROOT, places):
        if changed is not None and file not in changed:
            continue
        for prose in prose_texts.prose_of(file, (ROOT / file).read_text(encoding="utf-8", errors="replace")):
            result.words[prose.kind] += len(plain(prose.text).split())
            for hit in hits_of(file, prose, book):
                if changed is None or is_changed(prose, hit, changed[file]):
                    result.hits.append(hit)
    return result


def table(counted: Count, entries: Iterable[Habit]) -> str:
    """Return the counts as a table, one line for each entry that was found."""
    by_name = Counter((h.habit.name if h.habit else LONG, h.kind) for h in counted.hits)
    lines = [f"{'':20}" + "".join(f"{kind + 's':>10}" for kind in KINDS) + "  write"]
    for name, write in [*((entry.name, entry.write) for entry in entries), (LONG, "shorter sentences")]:
        numbers = [by_name[name, kind] for kind in KINDS]
        if any(numbers):
            lines.append(f"{name:20}" + "".join(f"{n:>10}" for n in numbers) + f"  {write}")
    limits = counted.limits()
    rates = [
        f"{1000 * limits[kind]['replace'] / max(1, counted.words[kind]):.1f} in {kind}s" for kind in KINDS
    ]
    return "\n".join([*lines, "phrases to replace per 1,000: " + ", ".join(rates)])


def risen(now: Mapping[str, Mapping[str, int]], kept: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return one line for each count that is above the ratchet."""
    names = {"replace": "phrases to replace", "long": f"sentences of more than {LONGEST} words"}
    return [
        f"prose: {names[what]} in {kind}s: expected at most {kept[kind][what]}, got {n}"
        for kind, counts in now.items()
        for what, n in counts.items()
        if n > kept[kind][what]
    ]


def written(limits: Mapping[str, Mapping[str, int]]) -> str:
    """Return the text of the ratchet's file."""
    head = "# Most phrases to replace and long sentences: python tests/prose.py --write lowers them.\n"
    return head + "".join(
        f"\n[{kind}]\n" + "".join(f"{what} = {n}\n" for what, n in counts.items())
        for kind, counts in limits.items()
    )


def check(counted: Count, book: PhraseBook) -> int:
    """Compare the counts with the ratchet; above it, print the changed lines first. Return the exit code."""
    faults = risen(counted.limits(), tomllib.loads(RATCHET.read_text(encoding="utf-8")))
    if faults:
        baseline = prose_texts.git(ROOT, "log", "-1", "--format=%H", "--", str(RATCHET)).strip()
        changed = count([], book, baseline).hits if baseline else []
        print(*(hit for hit in changed if not hit.habit or hit.habit.table == "replace"), sep="\n")
        print(*faults, sep="\n")
        print("prose: write what docs/glossary.md says in the lines above")
    return 1 if faults else 0


def lower(limits: Mapping[str, Mapping[str, int]]) -> None:
    """Write the ratchet with the counts that have fallen."""
    kept = tomllib.loads(RATCHET.read_text(encoding="utf-8")) if RATCHET.exists() else limits
    lowered = {
        kind: {what: min(n, kept[kind][what]) for what, n in counts.items()}
        for kind, counts in limits.items()
    }
    RATCHET.write_text(written(lowered), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Count, list, write or check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("places", nargs="*", metavar="PLACE")
    parser.add_argument("--lines", metavar="NAME")
    parser.add_argument("--since", metavar="REV")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    entries = habits(GLOSSARY.read_text(encoding="utf-8"))
    wanted = options.lines or ("replace" if options.since else None)
    known = {*TABLES, LONG, "all", *(entry.name for entry in entries)}
    if wanted is not None and wanted not in known:
        parser.error(f"--lines: expected one of {', '.join(sorted(known))}, got '{wanted}'")
    book = PhraseBook(entries)
    counted = count(options.places, book, options.since)
    if wanted:
        for hit in counted.hits:
            if wanted in ("all", *((hit.habit.name, hit.habit.table) if hit.habit else (LONG,))):
                print(hit)
        return 0
    if options.check:
        return check(counted, book)
    print(table(counted, entries))
    if options.write:
        lower(counted.limits())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
