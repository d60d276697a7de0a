"""The count of lines without a real type in python/mudd_core, which may only fall.

    python tests/type_ratchet.py            exit code 1 if there are more of them than tests/data/loose_types.txt says
    python tests/type_ratchet.py --write    write the counts again, after some were removed

A line counts if it has the word Any, the annotation `object`, a call of `cast` or a comment `type: ignore`.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "mudd_core"
KEPT = ROOT / "tests" / "data" / "loose_types.txt"
_ANY = re.compile(r"\bAny\b")


def loose_lines(source: str) -> set[int]:
    """Return the numbers of the lines of a module that count."""
    found = {number for number, line in enumerate(source.splitlines(), 1) if _ANY.search(line)}
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        is_annotation = token.string == "object" and after.string not in ("(", ".") and before.string != "."
        is_cast = token.string == "cast" and after.string == "("
        is_ignored = token.type == tokenize.COMMENT and "type: ignore" in token.string
        if is_ignored or (token.type == tokenize.NAME and (is_annotation or is_cast)):
            found.add(token.start[0])
    return found


def counts(package: Path = PACKAGE) -> dict[str, int]:
    """Return the number of such lines by file, without the files that have none."""
    files = {
        file.relative_to(package).as_posix(): len(loose_lines(file.read_text(encoding="utf-8")))
        for file in sorted(package.rglob("*.py"))
    }
    return {name: count for name, count in files.items() if count}


def kept() -> dict[str, int]:
    """Return the counts that were written last."""
    pairs = (line.split() for line in KEPT.read_text(encoding="utf-8").splitlines())
    return {name: int(count) for count, name in pairs}


def risen(now: Mapping[str, int], before: Mapping[str, int]) -> list[str]:
    """Return one line for each file whose count has risen, if the sum over all files has risen."""
    if sum(now.values()) <= sum(before.values()):
        return []
    return [
        f"{name}: {count} lines without a real type, {before.get(name, 0)} before"
        for name, count in now.items()
        if count > before.get(name, 0)
    ]


def main(arguments: list[str]) -> int:
    """Check the counts or write them."""
    now = counts()
    if arguments == ["--write"]:
        KEPT.write_text("".join(f"{count} {name}\n" for name, count in now.items()), encoding="utf-8")
        return 0
    before = kept()
    total, allowed = sum(now.values()), sum(before.values())
    if faults := risen(now, before):
        print(*faults, sep="\n")
        print(f"types: {total} lines with Any, object, cast or type: ignore, expected at most {allowed}")
        return 1
    if total < allowed:
        print(f"types: {allowed} -> {total} loose lines; write it down: python tests/type_ratchet.py --write")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
