"""The start of a fine-tuning run: its base, its config and the lines about its choices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import FormatError, SaveError, UserError, write_reason
from mudd_core.base.storage import is_url
from mudd_core.cli.tune.base import (
    Base,
    adapter_of,
    base_of,
    base_sha256,
    require_elsewhere,
    require_same_adapter,
    require_same_base,
)
from mudd_core.cli.tune.fields import require_adapter_of, require_data, require_fields, require_template
from mudd_core.cli.tune.recipe import recipe_of
from mudd_core.config import Config, load_config
from mudd_core.config.saved import to_json
from mudd_core.data.sources.access import local_root
from mudd_core.data.sources.notes import are_changed
from mudd_core.data.sources.splits import sources_of
from mudd_core.run.records.facts import data_fingerprint
from mudd_core.run.store.folder_lock import FolderLock
from mudd_core.run.store.holders import claimed
from mudd_core.run.store.json_files import read_facts, read_saved_config
from mudd_core.run.store.metrics_file import require_metrics_file
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.tune_arguments import TuneArguments

_METRICS_FILE = "log.metrics_file="


@dataclass(frozen=True)
class Asked:
    """The arguments of a fine-tuning. adapter: empty for none. fields: overrides. plan: nothing is trained."""

    base: str
    data: str
    run: RunFolder
    adapter: str
    fields: Sequence[str]
    ranks: int = 1
    plan: bool = False


@dataclass(frozen=True)
class Start:
    """The inputs of a run. place: the arguments for a base that was moved."""

    base: Base
    config: Config
    counted: float
    lines: list[str]
    place: list[str]


@contextmanager
def started(asked: Asked) -> Iterator[Start]:
    """Provide base and config, saved for a new run. No other tune may replace them in the body."""
    run = asked.run
    require_elsewhere(asked.base, run)
    # Checked before a base is imported for the run.
    if not run.holds_run:
        config = require_fields(asked.fields, asked.base)
        require_data(asked.data)
        if asked.adapter:
            require_adapter_of(config, asked.adapter)
        if config is not None:
            require_template(config, asked.base)
    if named := [word for word in asked.fields if _METRICS_FILE in word]:
        require_metrics_file(load_config("tiny.py", named), run)
    with ExitStack() as claim:
        # The plan of a started run writes nothing, so it may be printed while the run trains.
        with nullcontext() if asked.plan and run.holds_run else FolderLock(run):
            start = _prepared(asked)
            if not asked.plan:
                # No other tune may replace the config before the training starts.
                claim.enter_context(claimed(run))
        yield start


def _prepared(asked: Asked) -> Start:
    """Return base and config, and save both for a new run. The run's folder must be locked."""
    run = asked.run
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
        return Start(base, config, 1.0, lines, [f"start.load_parameters_path={base.run}"] if moved else [])
    adapter = adapter_of(asked.adapter, base, run) if asked.adapter else None
    recipe = recipe_of(base, asked.data, run.path.name, asked.fields, adapter, asked.ranks)
    if not asked.plan:
        _keep(run.asked_file, recipe.kept)
        # With adapters, run.json has the hash of the base.
        sha256 = "" if recipe.config.tune.method == "lora" else base_sha256(base.run)
        TuneArguments(asked.base, asked.data, asked.adapter, [*asked.fields], sha256).keep(run)
    return Start(base, recipe.config, recipe.counted, recipe.lines, [])


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
