"""Find out why two runs differ: the settings, the first step, and the first value that differs.

    python3 launch.py diff runs/one runs/two
    python3 launch.py diff --record runs/one --step=2 --to=one.jsonl
    python3 launch.py diff runs/two one.jsonl

A and B are runs, also at a URL, checkpoints (a run up to that step) or records. The first step that differs
is replayed in both, in memory, from the newest equal state. --record writes digests of all values of
a step, no weights, so that two machines can be compared. The exit code is 0 if A and B are equal
through their last common step, and 1 if they differ. It is 2 if they cannot be compared. No run is
changed or locked, so a run may still be training.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import PurePath
from typing import NoReturn

from mudd_core.base.errors import UserError
from mudd_core.base.paths import local
from mudd_core.base.show.json_text import json_text
from mudd_core.base.show.printable import visible
from mudd_core.base.show.terminal import screen
from mudd_core.base.surroundings import typed_program
from mudd_core.base.types import JsonObject
from mudd_core.config.tool_arguments import ToolArguments, whole_number
from mudd_core.fingerprint import StepRecord
from mudd_core.run.store.saved_run import run_and_step
from mudd_core.tools.compare import Part
from mudd_core.tools.compare.show import part_lines
from mudd_core.tools.diff.found import difference_of
from mudd_core.tools.diff.named import named_run, named_runs
from mudd_core.tools.diff.records import (
    compared_records,
    is_record,
    record_of,
    record_parts,
    record_values,
)

EQUAL, DIFFERS = 0, 1


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    parser = _parser()
    asked = parser.options(words)
    if asked.record is not None:
        return _write_record(asked, parser)
    for option in ("step", "to"):
        if getattr(asked, option) is not None:
            parser.error(f"--{option} belongs to --record=RUN")
    if len(asked.runs) > 2:
        raise UserError(f"[diff] RUN: expected two runs, got {len(asked.runs)}; `compare` accepts more")
    if len(asked.runs) == 2 and any(map(is_record, asked.runs)):
        return _records(asked)
    base, other = named_runs(asked.runs)
    found = difference_of(base, other, train=asked.train, trust_code=asked.trust_code)
    _show(asked, found.parts(), found.values())
    if found.error is not None:
        sys.stdout.flush()
        raise found.error
    return EQUAL if found.equal else DIFFERS


def _parser() -> ToolArguments:
    parser = ToolArguments("diff", __doc__ or "")
    parser.add_argument(
        "runs", nargs="*", metavar="RUN", help="folder of a run or of a checkpoint, or a record"
    )
    parser.add_argument(
        "--train",
        action="store_true",
        help="also train for minutes to reach the step, without an equal checkpoint",
    )
    parser.add_argument("--record", metavar="RUN", help="write the record of a step of this run instead")
    parser.add_argument("--step", type=whole_number(low=1), metavar="N", help="with --record: update N")
    parser.add_argument("--to", metavar="FILE", help="with --record: the file")
    parser.add_argument("--json", action="store_true", help="print JSON instead (docs/file-formats.md)")
    parser.add_argument(
        "--trust-code",
        action="store_true",
        help="run the Python files of a run from another machine; read them first",
    )
    return parser


def _show(asked: argparse.Namespace, parts: Sequence[Part], values: JsonObject) -> None:
    if asked.json:
        print(json_text("diff", values))
        return
    width = screen().width
    print(visible("\n\n".join("\n".join(part_lines(part, width)) for part in parts)))


def _write_record(asked: argparse.Namespace, parser: ToolArguments) -> int:
    """Write the record of a step; return the exit code."""
    if asked.runs:
        parser.error(f"unexpected argument '{asked.runs[0]}' with --record")
    if asked.step is None:
        parser.require("--step" if asked.to is not None else "--step, --to")
    if asked.to is None:
        _require_file(asked)
    target = local(asked.to, "[diff] --to")
    if target.exists():
        raise UserError(f"[diff] --to: expected a new file, got {target}, which exists; type another name")
    if not target.parent.is_dir():
        raise UserError(f"[diff] --to: expected a file in a folder that exists, got {target}")
    record = record_of(
        named_run("A", asked.record), asked.step, train=asked.train, trust_code=asked.trust_code
    )
    record.write(target)
    print(f"record  {target}  step {record.header.step:,}, {len(record.lines):,} values")
    return 0


def _require_file(asked: argparse.Namespace) -> NoReturn:
    """Raise UserError with the whole command; the file has the name of the run and the step."""
    name = PurePath(run_and_step(asked.record)[0]).name or "run"
    options = ["--record", asked.record, f"--step={asked.step}", f"--to={name}-step-{asked.step}.jsonl"]
    rest = [f"--{name}" for name in ("train", "trust-code") if getattr(asked, name.replace("-", "_"))]
    command = shlex.join([*typed_program(), "diff", *options, *rest])
    raise UserError(f"[diff] --to is missing; type: {command}")


def _records(asked: argparse.Namespace) -> int:
    """Compare two records, or a run with a record; return the exit code."""
    names = (asked.runs[0], asked.runs[1])
    read = [StepRecord.read(local(name, "[diff] RUN")) if is_record(name) else None for name in names]
    step = next(record.header.step for record in read if record is not None)
    made = [
        record
        or record_of(
            named_run(letter, name, or_record=True), step, train=asked.train, trust_code=asked.trust_code
        )
        for letter, name, record in zip("AB", names, read, strict=True)
    ]
    found = compared_records(made[0], made[1])
    _show(asked, record_parts(names, found), record_values(names, found))
    return EQUAL if found.equal else DIFFERS
