"""Fine-tune a Hugging Face model or a run on conversations.

    python3 launch.py tune --base=SmolLM2-135M --data=chat.jsonl --workdir=runs/mine
    python3 launch.py tune --base=SmolLM2-135M --data=chat.jsonl --workdir=runs/mine --plan

The command prints its choices with reasons, trains, and shows held-out prompts with the answers of both models. On
Ctrl-C or SIGTERM it saves and exits with code 75; the same command resumes.
"""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import FormatError, SaveError, StopRequestedError, UserError, write_reason
from mudd_core.base.paths import local
from mudd_core.base.storage import is_url
from mudd_core.base.surroundings import typed_program
from mudd_core.cli import argv, entry
from mudd_core.cli.commands import plan
from mudd_core.cli.names import JOB_OPTIONS, OPTIONS
from mudd_core.cli.same_run import typed
from mudd_core.cli.tune.base import (
    Base,
    adapter_of,
    base_of,
    base_sha256,
    require_elsewhere,
    require_same_adapter,
    require_same_base,
)
from mudd_core.cli.tune.before_after import print_answers
from mudd_core.cli.tune.recipe import recipe_of
from mudd_core.config import Config, load_config
from mudd_core.config.saved import to_json
from mudd_core.config.tool_arguments import ToolArguments
from mudd_core.config.values import whole
from mudd_core.data.sources.access import local_root
from mudd_core.data.sources.notes import are_changed
from mudd_core.data.sources.splits import sources_of
from mudd_core.run.loop import signals
from mudd_core.run.records.facts import data_fingerprint
from mudd_core.run.store.folder_lock import FolderLock
from mudd_core.run.store.holders import claimed
from mudd_core.run.store.json_files import read_facts, read_saved_config
from mudd_core.run.store.metrics_file import require_metrics_file
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.tune_arguments import TuneArguments


@dataclass(frozen=True)
class _Start:
    """The inputs of a run. place: the arguments for a base that was moved."""

    base: Base
    config: Config
    counted: float
    lines: list[str]
    place: list[str]


_METRICS_FILE = "log.metrics_file="


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    asked, rest = _parser().read(words)
    run = RunFolder(local(asked.workdir, "[tune] --workdir"))
    require_elsewhere(asked.base, run)
    if named := [
        word for word in rest if _METRICS_FILE in word
    ]:  # checked before a base is imported for the run
        require_metrics_file(load_config("tiny.py", named), run)
    with ExitStack() as claim:
        # The plan of a started run writes nothing, so it may be printed while the run trains.
        with nullcontext() if asked.plan and run.holds_run else FolderLock(run):
            start = _prepared(asked, rest, run)
            if not asked.plan:
                claim.enter_context(
                    claimed(run)
                )  # no other tune may replace the config before the training starts
        code = _planned_or_trained(asked, words, rest, run, start)
    if asked.plan or code != 0:
        return code
    try:
        signals.take_for_good()  # with ranks, other processes had these signals during the training
        print_answers(run, start.base)
    except StopRequestedError as error:
        again = shlex.join([*typed_program(), "tune", *words])
        print(f"stopped by {error} before all answers were printed; to print them:\n  {again}", flush=True)
        return 75
    print(f"\nexport   {shlex.join([*typed_program(), 'export', f'--workdir={run}', f'--to={run}-export'])}")
    return code


def _planned_or_trained(
    asked: Namespace, words: Sequence[str], rest: list[str], run: RunFolder, start: _Start
) -> int:
    """Print the choices, then print the plan or train; return the exit code."""
    print("\n".join(start.lines), flush=True)
    given = {name: getattr(asked, name[2:].replace("-", "_")) for name in JOB_OPTIONS}
    job = {name: value for name, value in given.items() if value}
    if asked.plan:
        print(plan(start.config, run, job, [*typed_program(), "tune", *words], start.counted))
        return 0
    options = [f"{name}={value}" for name, value in job.items()]
    train = ["train", f"--config={run.asked_file}", f"--workdir={run}", *options, *start.place, *rest]
    with typed(["tune", *words]):
        return entry.run(argv.parse([*train, *(["--verbose"] if asked.verbose else [])]))


def _prepared(asked: Namespace, rest: list[str], run: RunFolder) -> _Start:
    """Return base and config, and save both for a new run. The run's folder must be locked."""
    if not run.holds_run:
        with claimed(run):  # locked before an import replaces the base of another tune
            pass
    base = base_of(asked.base, run)
    if run.holds_run:
        config = _resumed(run, base, asked.data)
        moved = config.tune.method == "lora" and not Path(config.start.load_parameters_path).exists()
        if asked.adapter:
            require_same_adapter(asked.adapter, run)
        lines = [f"resumes {run}: its choices are in {run.asked_file}", *_changed_data(config, run)]
        return _Start(base, config, 1.0, lines, [f"start.load_parameters_path={base.run}"] if moved else [])
    adapter = adapter_of(asked.adapter, base, run) if asked.adapter else None
    ranks = whole("[arguments] --ranks", asked.ranks or "1", 1, 1024)
    recipe = recipe_of(base, asked.data, run.path.name, rest, adapter, ranks)
    if not asked.plan:
        _keep(run.asked_file, recipe.kept)
        # With adapters, run.json has the hash of the base.
        sha256 = "" if recipe.config.tune.method == "lora" else base_sha256(base.run)
        TuneArguments(asked.base, asked.data, asked.adapter or "", rest, sha256).keep(run)
    return _Start(base, recipe.config, recipe.counted, recipe.lines, [])


def _parser() -> ToolArguments:
    parser = ToolArguments("tune", __doc__ or "", fields="train.epochs=2")
    parser.add_argument(
        "--base", required=True, metavar="DIR", help="folder of Hugging Face, or a run, to start from"
    )
    parser.add_argument(
        "--data", required=True, metavar="FILE", help="conversations: jsonl, Parquet or Arrow (docs/data.md)"
    )
    parser.add_argument("--adapter", metavar="DIR", help="PEFT folder, whose adapters are trained further")
    parser.add_argument("--workdir", required=True, metavar="DIR", help="work directory of the run")
    parser.add_argument(
        "--plan", action="store_true", help="print the choices, tokens, memory and time; train nothing"
    )
    for name in JOB_OPTIONS:
        value, text, _ = OPTIONS[name]
        parser.add_argument(name, metavar=value, help=text)
    parser.add_argument("--verbose", action="store_true", help="print the whole config too")
    return parser


def _resumed(run: RunFolder, base: Base, data: str) -> Config:
    """Return the saved config of the run. Raise UserError if it was started with other data or another base."""
    config = read_saved_config(run)
    if not run.asked_file.is_file():
        raise UserError(f"[tune] --workdir: {run} is a run that tune did not start; give another folder")
    if config.data.path != data:
        raise UserError(
            f"[tune] --data: {run} was started with {config.data.path}, got {data}; give that, or another --workdir"
        )
    require_same_base(config, base, run)
    return config


def _changed_data(config: Config, run: RunFolder) -> list[str]:
    """Return a note if the file of conversations has changed since the run started."""
    if is_url(config.data.path):
        return []
    fingerprint = data_fingerprint(read_facts(run))
    try:
        found = sources_of(config.data)
    except (UserError, FormatError):  # the file is missing, but the run no longer needs it
        return []
    if not are_changed(
        local_root(config.data.cache_dir), f"chat-{fingerprint}", (*found.train, *found.valid)
    ):
        return []
    return [
        f"note: {config.data.path} changed after the start of {run}; the run continues with its original "
        "conversations; to train on the changed file, give another --workdir"
    ]


def _keep(file: Path, config: Config) -> None:
    """Write the config of a new run; raise SaveError if that fails."""
    try:
        _core.make_folders(str(file.parent))
        _core.replace_file(str(file), to_json(config).encode())
    except OSError as error:
        raise SaveError(f"[tune] {file} could not be written: {write_reason(error)}") from error
