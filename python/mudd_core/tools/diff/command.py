"""Find out why two runs differ: the settings, the first step, and the first node whose values differ.

    python3 launch.py diff runs/one runs/two

A and B are folders of runs or of checkpoints. The settings that differ come first, then the first step that differs.
The exit code is 0 if the runs are equal through their last common step, and 1 if they differ. It is 2 if they cannot
be compared. No run is changed and no lock is taken, so a run may still be training.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from mudd_core.base.errors import UserError
from mudd_core.base.show.json_text import json_text
from mudd_core.base.show.printable import visible
from mudd_core.base.show.terminal import screen
from mudd_core.config.tool_arguments import ToolArguments
from mudd_core.tools.compare.command import read_runs
from mudd_core.tools.compare.show import part_lines
from mudd_core.tools.diff.evidence import Evidence, evidence
from mudd_core.tools.diff.parts import parts_of
from mudd_core.tools.diff.values import values_of

EQUAL, DIFFERS = 0, 1


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    asked = _parser().options(words)
    return _runs(asked)


def _parser() -> ToolArguments:
    parser = ToolArguments("diff", __doc__ or "")
    parser.add_argument("runs", nargs="*", metavar="RUN", help="folder of a run or of a checkpoint")
    parser.add_argument("--json", action="store_true", help="print JSON instead (docs/file-formats.md)")
    return parser


def _runs(asked: argparse.Namespace) -> int:
    if len(asked.runs) > 2:
        raise UserError(f"[diff] RUN: expected two runs, got {len(asked.runs)}; `compare` accepts more")
    base, other = read_runs(asked.runs, "diff")
    found = evidence(base, other)
    if asked.json:
        print(json_text("diff", values_of(found)))
    else:
        print(visible(_text(found)))
    return EQUAL if found.step is None else DIFFERS


def _text(found: Evidence) -> str:
    """Return the report, without a line feed at its end."""
    width = screen().width
    return "\n\n".join("\n".join(part_lines(part, width)) for part in parts_of(found))
