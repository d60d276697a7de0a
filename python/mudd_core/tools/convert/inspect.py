"""Print a summary of files: format, records, lengths and the first documents.

For parts of C4 it also prints the known counts.

    python3 launch.py data inspect openwebtext/train
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mudd_core.config.tool_arguments import ToolArguments, whole_number
from mudd_core.data.formats import format_of
from mudd_core.data.formats.megatron import read_index
from mudd_core.data.sources import c4
from mudd_core.data.sources.selection import selected

_SHOWN = 72


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    asked = _parser().options(words)
    files = selected(asked.path, "data inspect", column="", ids=True).files
    counts: dict[Path, int] = {}
    for path in files:
        for line in inspected(path, asked.first, counts):
            print(line)
    print(
        f"{len(files)} file{'s' * (len(files) != 1)}, {sum(counts.values()):,} records, "
        f"{sum(p.stat().st_size for p in files):,} bytes"
    )
    for line in known_counts(counts):
        print(line)
    return 0


def _parser() -> ToolArguments:
    parser = ToolArguments("data inspect", __doc__ or "")
    parser.add_argument(
        "path", metavar="PATH", help="file, folder, glob, or several of them separated by commas"
    )
    parser.add_argument(
        "--first",
        type=whole_number(0),
        default=2,
        metavar="N",
        help="number of records shown per file; default 2",
    )
    return parser


def inspected(path: Path, first: int, counts: dict[Path, int]) -> list[str]:
    """Return lines about a file; add its number of records to `counts`."""
    one = format_of(path)
    lengths: dict[str, tuple[int, int, int, int]] = {}  # (least, most, sum, count) by column
    shown: list[str] = []
    count = 0
    for record in one.records(path, None):
        for name, value in record.items():
            size = len(value)
            low, high, total, n = lengths.get(name, (size, size, 0, 0))
            lengths[name] = (min(low, size), max(high, size), total + size, n + 1)
            if count < first:
                text = " ".join(map(str, value[:12])) if isinstance(value, np.ndarray) else repr(value)
                shown.append(f"  record {count}  {name}  {text[:_SHOWN]}")
        count += 1
    counts[path] = count
    lines = [f"{path}: {one.name}, {count:,} records"]
    if one.name == "megatron":
        index = read_index(path)
        lines[0] += f", {index.documents.size - 1:,} documents, ids of {index.kind}"
    for name, (low, high, total, n) in lengths.items():
        lines.append(f"  {name}  lengths {low} to {high}, mean {total / n:.1f}")
    return lines + shown


def known_counts(counts: dict[Path, int]) -> list[str]:
    """Return the known and the found counts of the C4 parts that are present."""
    lines = []
    numbered = {number: n for path, n in counts.items() if (number := c4.train_number(path)) is not None}
    for name, (low, high, known) in c4.PARTS.items():
        mine = [n for number, n in numbered.items() if low <= number <= high]
        if mine:
            files = f"{len(mine)} of {high - low + 1} files ({low} to {high})"
            lines.append(f"{name}: {files}, {sum(mine):,} documents found, {known:,} known")
    name, known = c4.VALIDATION
    mine = [n for path, n in counts.items() if name in path.name]
    if mine:
        lines.append(f"validation_24567exp: {sum(mine):,} documents found, {known:,} known")
    return lines
