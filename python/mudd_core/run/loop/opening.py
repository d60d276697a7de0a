"""The opening of a run: its work directory, the config to train, the log, the model and the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.config import Config, Difference, check_config, mesh_of, to_dict
from mudd_core.config.fields import replace_path
from mudd_core.config.mesh import CUT_MEASURES, EXPERT_MEASURES
from mudd_core.run.build.components import Components, with_model_of
from mudd_core.run.build.grow import refuse_cut_growth
from mudd_core.run.build.rows import shortened
from mudd_core.run.build.run_data import with_steps
from mudd_core.run.build.start_sizes import require_same_sizes
from mudd_core.run.build.start_source import check_start, fetch_start
from mudd_core.run.build.start_tokenizer import with_source_tokenizer
from mudd_core.run.loop.session import Session
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.facts import DATA_FACT, data_fingerprint
from mudd_core.run.records.journal import Journal, Listener
from mudd_core.run.report.busy import BusyNotes
from mudd_core.run.report.history import History
from mudd_core.run.report.progress import Progress
from mudd_core.run.report.screen import Screen
from mudd_core.run.report.start_lines import ASSUMED, Start, detail_lines, start_lines
from mudd_core.run.report.style import RunFacts, compliance_log, has_own_start, measures_weights, style_of
from mudd_core.run.report.style_log import Compliance, StyleLog
from mudd_core.run.report.tracker import Tracker, require_tracker, tracker_mode
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.metrics import last_peak_share
from mudd_core.run.store.metrics_file import require_metrics_file
from mudd_core.run.store.run_as_text import require_text
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.run_store import RunStore

if TYPE_CHECKING:
    from mudd_core.engine.model import Model

Assemble: TypeAlias = "Callable[[Config, Model | None, str | None, Ranks, Checkpoints | None], Components]"


def open_run(
    asked: Config,
    workdir: str | Path | RunStore | None,
    model: Model | None,
    ranks: Ranks,
    progress: Progress | None,
    fields: Mapping[str, object] | None,
    assemble: Assemble,
    opened: ExitStack,
    history: History,
) -> tuple[Session, list[Difference]]:
    """Return the run for a Trainer's arguments, before its weights are loaded, and the fields that changed.

    opened: closes the parts of the run; the caller closes it, also after an error. history: the first listener.
    """
    asked = asked if model is None else with_model_of(model, asked)
    _require_valid(asked, ranks)
    store = _store(workdir, ranks, asked.storage.map)
    if store is not None:
        opened.callback(store.close)
    config, changed = store.adopt(asked) if store else (asked, [])
    said, warned = "", ""
    is_new = not (store and store.has_checkpoint())
    if is_new:
        ranks.together(lambda: require_text(config, store.folder if store else None))
    if model is None and (is_new or config.tune.method == "lora"):
        _require_start(config, store.folder if store else None, ranks)
    if model is None and is_new:
        ranks.together(lambda: refuse_cut_growth(config, ranks.nodes))
        config, said, warned = _with_source_tokenizer(config, store, ranks)
    fingerprint = data_fingerprint(store.saved_facts()) if store else ""
    if not fingerprint:  # true at the first start, at which train.epochs becomes train.steps
        config = _kept(with_steps(config, None, ranks), store)
    journal = Journal(history)
    busy = BusyNotes(alone=ranks.world == 1)
    screen = Screen(progress or Progress(quiet=True), config.train, waits=has_own_start(config), busy=busy)
    if ranks.first:
        journal.add(screen, *(store.listeners(config) if store is not None else ()))
    opened.callback(lambda: journal.closed())
    if warned:
        journal.warned(warned)
    if said:
        journal.said(said)
    log = ranks.together(
        lambda: compliance_log(config, store.folder, screen.said) if store and ranks.first else None
    )
    if log is not None:
        journal.add(Compliance(log, ranks.world), first=True)
    parts = assemble(config, model, fingerprint or None, ranks, Checkpoints(store.folder) if store else None)
    if parts.steps:
        config = shortened(config, parts.steps)
        journal.shortened(config.train)
    run = Session(config, parts, store, journal, ranks, fingerprint or None)
    opened.callback(run.end_rows)
    if ranks.first:
        journal.add(*_style_listeners(run, screen, _style_facts(run, fields or {})))
    return run, changed


def _require_valid(asked: Config, ranks: Ranks) -> None:
    """Raise UserError on every rank if the config cannot run on these ranks, or if they have different configs."""
    check_config(asked)
    _require_one_config(asked, ranks)
    ranks.together(lambda: mesh_of(asked, ranks.world))
    ranks.together(lambda: require_tracker(asked.log))
    ranks.together(lambda: _refuse_measures(asked, ranks))
    ranks.together(lambda: require_metrics_file(asked) if ranks.first else None)


def _require_start(config: Config, folder: RunFolder | None, ranks: Ranks) -> None:
    """Fetch the weights of start.load_parameters_path; raise UserError on every rank if the run cannot start from them.

    folder: the folder of the run.
    """
    ranks.together(lambda: fetch_start(config) if ranks.first else None)
    ranks.together(lambda: check_start(config, folder))
    ranks.together(lambda: require_same_sizes(config, folder))


def _style_facts(run: Session, fields: Mapping[str, object]) -> RunFacts:
    """Return the facts about a run that a log style reads."""
    parts = run.components
    return RunFacts(
        run.config,
        run.store.folder if run.store else None,
        parts.flops_per_token,
        parts.peak,
        lambda: parts.model.n_parameters,
        parts.documents,
        run.ranks.world,
        fields,
    )


def lines_of_start(run: Session, changed: Sequence[Difference]) -> tuple[list[str], list[str]]:
    """Return the start lines for the screen, and further ones for the log.

    changed: fields that differ from the last start.
    """
    parts, step, folder = run.components, run.state.step_done, run.store.folder if run.store else None
    reached = last_peak_share(folder) if folder is not None and step else None
    threads = _core.num_threads()
    start = Start(
        config=run.config,
        folder=folder,
        machine=f"{threads} thread{'s' * (threads > 1)}, {_core.isa()}{run.ranks.text}",
        parameters=parts.model.n_parameters,
        vocabulary=parts.model.config.vocab_size,
        tokens=parts.train_tokens,
        validated=parts.validated_tokens,
        has_text=DATA_FACT in parts.facts,
        has_tokenizer=parts.tokenizer is not None,
        step=step,
        seconds=run.state.clock.seconds_ahead(step, parts.ideal_step(run.config) / (reached or ASSUMED)),
        measured=reached is not None,
        described=parts.described,
        outline=parts.outline,
        changed=changed,
    )
    return start_lines(start), detail_lines(start)


def _style_listeners(run: Session, screen: Screen, facts: RunFacts) -> Iterator[Listener]:
    """Yield the listeners that log in the style of the run's config: a program's log, and the tracker."""
    style, store = style_of(facts), run.store if run.store and not run.store.folder.read_only else None
    if not has_own_start(run.config):
        yield StyleLog(style, screen, None if store is None else store.logs)
    if store is not None and tracker_mode(run.config.log) != "off":
        yield Tracker(style, store)


def _require_one_config(config: Config, ranks: Ranks) -> None:
    """Raise UserError with the field if a rank's config differs from the first rank's config.

    Thread counts and file paths may differ. The data section is not compared here: ranks compare the data they read.
    """
    sections = {
        name: fields for name, fields in to_dict(config).items() if name not in ("data", "start", "storage")
    }
    facts = {
        f"{name}.{field}": value
        for name, fields in sections.items()
        if isinstance(fields, dict)
        for field, value in fields.items()
    }
    del facts["train.threads"]
    ranks.agree(facts)


def _refuse_measures(config: Config, ranks: Ranks) -> None:
    """Raise UserError if the log measures whole weights but each rank has only slices of them."""
    mesh = config.mesh
    if mesh.zero == 3 and ranks.nodes > 1:
        asked, limit = "zero=3 over several nodes", CUT_MEASURES
    elif mesh.expert > 1:
        asked, limit = f"expert={mesh.expert}", EXPERT_MEASURES
    else:
        return
    if measures_weights(config):
        raise UserError(f"[mesh] {asked}: {limit.why}")


def _store(workdir: str | Path | RunStore | None, ranks: Ranks, mounts: str) -> RunStore | None:
    """Return the store of a work directory, or the store itself if one is passed; None for a run without files."""
    if isinstance(workdir, str):
        return RunStore(RunFolder.named(workdir, mounts, "[workdir] path"), ranks)
    return RunStore(RunFolder(workdir), ranks) if isinstance(workdir, Path) else workdir


def _with_source_tokenizer(config: Config, store: RunStore | None, ranks: Ranks) -> tuple[Config, str, str]:
    """Return the config with the source's tokenizer if a run starts from other weights.

    Return the config, a line for the user and a warning; both may be empty.
    """

    def taken() -> list[str]:
        found, *texts = with_source_tokenizer(config, store.folder if store is not None else None)
        return [found.data.tokenizer, *texts]

    name, said, warned = ranks.from_first(taken)
    if name != config.data.tokenizer:
        config = _kept(replace_path(config, "data.tokenizer", name), store)
    return config, said, warned


def _kept(config: Config, store: RunStore | None) -> Config:
    """Return the config, after the store has set it as the config to save."""
    if store is not None:
        store.resolve(config)
    return config
