"""Write a teacher's likeliest tokens for each target of the data, from which a smaller model learns.

    python3 launch.py teach --base=SmolLM2-360M --data=chat.jsonl --top=64 --to=teacher.h5
    python3 launch.py teach --base=runs/big --data=corpus --to=teacher.h5 data.pipeline=text

The teacher reads each conversation, or each position of the text, once. `tune --teacher=FILE` and training with
loss.teacher=FILE learn from the file. A stopped or failed command leaves no file.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudd_core.config.tool_arguments import ToolArguments, whole_number
from mudd_core.run.loop import signals
from mudd_core.tools.teach.written import TOP, written


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    options, rest = parser().read(words)
    with signals.handlers():
        written(options, rest)
    return 0


def parser() -> ToolArguments:
    """Return the parser of the command."""
    found = ToolArguments("teach", __doc__ or "", fields="data.pipeline=text")
    found.add_argument(
        "--base", required=True, metavar="DIR", help="the teacher: a Hugging Face model folder, or a run"
    )
    found.add_argument("--data", required=True, metavar="FILE", help="data of the student (docs/data.md)")
    found.add_argument(
        "--top",
        type=whole_number(1),
        default=TOP,
        metavar="K",
        help=f"tokens kept for each target; default {TOP}",
    )
    found.add_argument("--to", required=True, metavar="FILE", help="new HDF5 file to write")
    return found
