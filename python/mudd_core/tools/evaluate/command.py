"""Evaluate a run or a Hugging Face folder on tasks of lm-evaluation-harness.

    python3 launch.py evaluate runs/small --tasks=mudd_minimal_pairs,mudd_brackets
    python3 launch.py evaluate FOLDER --tasks=hellaswag --limit=100 --few-shot=5 --to=result.json
    python3 launch.py evaluate FOLDER --tasks=mudd_library_cloze --chat

The tasks mudd_minimal_pairs, mudd_brackets and mudd_library_cloze, together mudd_offline, need no network. Most others
load a data set of the Hugging Face hub. `--tasks=list` lists all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.packages import needed
from mudd_core.base.paths import local
from mudd_core.config.tool_arguments import ToolArguments, whole_number
from mudd_core.lm_eval import TASKS, register
from mudd_core.tools.evaluate.names import require_possible


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    asked = (parser := _parser()).options(words)
    if asked.tasks is None:
        parser.require("--tasks")
    if asked.tasks != "list" and asked.source is None:
        parser.require("RUN")
    names = [name for name in asked.tasks.split(",") if name]
    if not names:
        parser.error("--tasks: expected the names of tasks, such as mudd_brackets, got none")
    harness = needed("lm_eval", "[evaluate] lm_eval", "to run the tasks")
    include = _included(asked.include)
    if names != ["list"]:
        own = [TASKS] if include is None else [TASKS, include]
        require_possible(names, [*own, Path(harness.__path__[0]) / "tasks"])
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")
    # Standard errors are computed here instead of in a pool, whose forks do not work with the core's threads.
    os.environ.setdefault("DISABLE_MULTIPROC", "1")
    register()
    from mudd_core.tools.evaluate.run import listed, run

    return listed(include) if names == ["list"] else run(asked, names, include)


def _included(text: str | None) -> Path | None:
    folder = None if text is None else local(text, "[evaluate] --include")
    if folder is not None and not folder.is_dir():
        raise UserError(f"[evaluate] --include: expected a folder with *.yaml files, got {folder}")
    return folder


def _parser() -> ToolArguments:
    parser = ToolArguments("evaluate", __doc__ or "")
    parser.add_argument("source", nargs="?", metavar="RUN", help="work directory, or a folder with a model")
    parser.add_argument("--tasks", metavar="A,B", help="names of tasks, groups or tags; list: print all")
    parser.add_argument(
        "--limit", type=whole_number(1), metavar="N", help="only the first N documents of each task"
    )
    parser.add_argument(
        "--few-shot",
        type=whole_number(0),
        metavar="N",
        help="examples before each document; default: of the task",
    )
    parser.add_argument(
        "--batch",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="most sequences computed at once; default 0: as many as fill 4096 tokens",
    )
    parser.add_argument("--chat", action="store_true", help="render documents by the chat template")
    parser.add_argument("--template", metavar="NAME", help="render by chatml or a Jinja file")
    parser.add_argument("--system", metavar="TEXT", help="render with this system message")
    parser.add_argument("--no-think", action="store_true", help="render with enable_thinking=false")
    parser.add_argument("--step", metavar="N", help="checkpoint of step N instead of the newest, or best")
    parser.add_argument("--tokenizer", metavar="PATH", help="tokenizer of a run that has none")
    parser.add_argument("--include", metavar="DIR", help="folder with further tasks of the harness (*.yaml)")
    parser.add_argument("--to", metavar="FILE", help="also write the results to a new JSON file")
    parser.add_argument(
        "--trust-code",
        action="store_true",
        help="run the Python files of a run that was not started on this machine; read them first",
    )
    return parser
