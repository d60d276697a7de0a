"""The training command: the output before, during and after the Trainer's work."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mudd_core.base.errors import DivergedError, SaveError, UserError
from mudd_core.base.surroundings import environment_text, typed_program
from mudd_core.cli.ending import ending, ending_details, prompt_of, show_sample
from mudd_core.cli.names import KNOWN_WORDS, MPIRUN
from mudd_core.cli.originals import import_weights, write_files
from mudd_core.cli.request import Request
from mudd_core.cli.same_run import command_line, to_go_on
from mudd_core.cli.standard_streams import Tee, copied_output
from mudd_core.config import Config, OtherConfigError, config_hash, mesh_of, split_words
from mudd_core.config.config_files import is_shipped
from mudd_core.config.describe import listing
from mudd_core.config.fields import walk
from mudd_core.config.overrides import field_path
from mudd_core.config.pipelines import spec_of
from mudd_core.run.build.recipe import recipe_note
from mudd_core.run.records.events import Summary
from mudd_core.run.report.progress import Progress
from mudd_core.run.report.style import has_own_start

if TYPE_CHECKING:
    from mudd_core.run.loop.trainer import Trainer
    from mudd_core.run.ranks.ranks import Ranks
    from mudd_core.run.store.run_store import RunStore


def train(request: Request, ranks: Ranks | None = None) -> int:
    """Train or resume; return 75 if stopped on request.

    ranks: the ranks of the run; all make this call, and rank 0 prints.
    """
    from mudd_core.run.loop import signals
    from mudd_core.run.ranks.rank_cores import widen_binding
    from mudd_core.run.ranks.ranks import Ranks
    from mudd_core.run.report.tracker import require_tracker
    from mudd_core.run.store.metrics_file import require_metrics_file

    ranks = ranks or Ranks()
    config, world = request.required_config(), ranks.world
    ranks.together(lambda: mesh_of(config, world))
    ranks.together(lambda: require_tracker(config.log))
    ranks.together(lambda: require_metrics_file(config, request.folder) if ranks.first else None)
    if world == 1 and (note := widen_binding(config.train.threads)):
        print(f"warning: {note}", file=sys.stderr)
    if ranks.first:
        say_notes(request)
    signals.take_for_good()
    if reason := ranks.first_given(signals.stop_reason()):
        if ranks.first:
            print(
                f"stopped by {reason} before anything was written; to start:\n  {command_line(request, ranks=world)}"
            )
        return 75
    store = _store(request, ranks)
    try:
        lost = partial(signals.request, "standard output that cannot be written")
        with copied_output(store.folder, lost) if ranks.first else nullcontext() as output:
            code = _train(request, store, ranks)
    except BaseException:
        with contextlib.suppress(SaveError):  # the current error takes precedence
            store.close()
        raise
    store.close()
    if output is not None and output.lost is not None:
        print(f"error: {output.lost}; {store.folder.output_file} has all of it", file=sys.stderr)
        return code if code not in (0, 75) else SaveError.exit_code
    return code


def say_notes(request: Request) -> None:
    """Print an original program's notes about its arguments."""
    for note in request.notes:
        print(f"note: {note}", file=sys.stderr)


def _store(request: Request, ranks: Ranks) -> RunStore:
    """Return the locked work directory."""
    from mudd_core.run.store.run_store import RunStore

    store = RunStore(request.folder, ranks)
    store.source = request.source
    return store


def _train(request: Request, store: RunStore, ranks: Ranks) -> int:
    """Train or resume in a locked work directory, and return the exit code."""
    from mudd_core.run.report.limits import limit_of

    config = store.adopt_by(lambda: _adopted(store, request.required_config(), request, ranks.world))
    # mpirun's first rank has a terminal, whatever mpirun's own output is.
    details = _details("--verbose" in request.options)
    progress = Progress(quiet=not ranks.first, live=ranks.world == 1, paced=True, details=details)
    sweep = None if request.resolved is None else request.resolved.sweep
    if sweep is not None and ranks.from_first(lambda: sweep.is_done(store.folder)):
        progress.say(
            f"{store.folder} is a finished run of a sweep (it has done.txt) and is skipped; delete "
            "done.txt to start it again"
        )
        return 0
    summary = store.summary()
    if summary is not None and sweep is None:
        return _finished_before(summary, config, request, store, progress, ranks)
    trainer = _opened(config, request, store, progress, ranks)
    try:
        summary = trainer.fit()
    finally:
        progress.close()
    if summary.stopped:
        saved = _saved(config, summary)
        progress.say(
            f"stopped by {summary.stopped} at step {summary.step} of {summary.steps}{saved}; to resume:\n"
            f"  {to_go_on(request, summary.stopped, ranks.world)}"
        )
        return 75
    if sweep is not None:
        progress.say(sweep.finish(trainer.engine, config, store.folder, summary.step, ranks).rstrip())
        store.settle()
    # Runs on conversations print no sample and no sample command, because an answer needs a question.
    if not _is_chat(config) and (ranks.first or config.mesh.runs_together(ranks.world)):
        show_sample(trainer, config, shown=ranks.first)
    if ranks.first:
        # A program's log style prints only what the program prints.
        limit = limit_of(store.folder, config) if has_own_start(config) else ""
        prompt = None if _is_chat(config) else prompt_of(trainer)
        print(ending(summary, store.folder, request, prompt, limit, chats=_is_chat(config)))
        progress.detail(ending_details(summary, store.folder))
    ranks.barrier()  # wait until rank 0 has read the shared weights
    return _code(summary, ranks.first)


def _is_chat(config: Config) -> bool:
    """Return True if the run trains on conversations."""
    return spec_of(config.data.pipeline).conversations


def _finished_before(
    summary: Summary, config: Config, request: Request, store: RunStore, progress: Progress, ranks: Ranks
) -> int:
    """Report that the work directory has a finished run, and return its exit code."""
    from mudd_core.run.build.run_tokenizer import has_text
    from mudd_core.run.store.longer import after_the_end

    store.settle()
    prompt = "" if has_text(config) and not _is_chat(config) else None
    progress.say(after_the_end(request.typed_workdir, config, summary, typed_program()))
    progress.say(ending(summary, store.folder, request, prompt, chats=_is_chat(config)))
    progress.detail(ending_details(summary, store.folder))
    return _code(summary, ranks.first)


def _opened(config: Config, request: Request, store: RunStore, progress: Progress, ranks: Ranks) -> Trainer:
    """Return the Trainer of a run; describe the run, and write the files that an original program would."""
    from mudd_core.run.loop.trainer import Trainer

    resolved, own_start = request.resolved, has_own_start(config)
    note, origins = recipe_note(config), ""
    if line := os.environ.get(MPIRUN):
        progress.detail(f"started by {line}")
    if resolved is not None:
        from mudd_core.programs.resolved import origin_text

        origins = origin_text(resolved)
    if not own_start:
        text = f"{listing(config)}\nconfig {config_hash(config)[:16]}  work directory {store.folder}"
        progress.say("\n".join(filter(None, (origins, text, note))))
    of_original = ranks.any(resolved is not None)  # only rank 0 has resolved it
    if of_original and not store.has_checkpoint():
        ranks.together(lambda: import_weights(resolved, ranks))
    fields = resolved.fields if resolved is not None else {}
    trainer = Trainer(config, store, progress=progress, comm=ranks.comm, fields=fields)
    if of_original:
        ranks.together(lambda: write_files(resolved, ranks))
    if own_start:
        if origins:
            progress.detail(origins)
        if note:
            progress.say(note)
    else:
        progress.say(environment_text(config.train.precision) + ranks.text)
    return trainer


def _details(shown: bool) -> Callable[[str], int | None]:
    """Return the writer of details: standard output (copied to log.txt) if details are shown, else log.txt."""
    out = sys.stdout
    return out.copy if isinstance(out, Tee) and not shown else out.write


def _code(summary: Summary, prints: bool) -> int:
    """Return the exit code of a finished run.

    It is 76, with a message on stderr, if the last validation is not finite.
    """
    if not summary.validates or (summary.val_loss is not None and math.isfinite(summary.val_loss)):
        return 0
    if prints:
        print(
            f"error: [train] validation loss of step {summary.step}: expected a finite number, got "
            f"{summary.val_loss if summary.val_loss is not None else 'none'}; a lower optim.lr or another seed may "
            "train; held-out rows without targets have no loss",
            file=sys.stderr,
        )
    return DivergedError.exit_code


def _saved(config: Config, summary: Summary) -> str:
    """Return a sentence about the state that a stopped run has saved."""
    if not config.train.save:
        return ", not saved (train.save=false): its updates are lost"
    if config.train.save_policy == "best":
        return "; the checkpoint is from the best validation, later updates are lost"
    return ", saved" if summary.step else ""


def _adopted(store: RunStore, asked: Config, request: Request, ranks: int) -> Config:
    """Return the config to run; print a note if its file has changed. A UserError has the commands that work."""
    from mudd_core.cli.second_run import refused
    from mudd_core.run.store.config_source import changed_file, of_facts, require_registered
    from mudd_core.run.store.identity import require_weights
    from mudd_core.run.store.json_files import facts_of, read_saved_config
    from mudd_core.run.store.own_code import as_saved
    from mudd_core.run.store.resumed_config import with_saved_free_fields

    require_weights(store.folder)
    note, facts, store.source = "", facts_of(store.folder), request.source
    saved_source = of_facts(facts)
    if saved_source is not None:
        require_registered(saved_source.registers, saved_source.file)
        if request.source is not None:  # an earlier command of this process may have run the file
            request.source.registers = sorted({*request.source.registers, *saved_source.registers})
    asked = as_saved(asked, store.folder, facts)
    file = changed_file(saved_source, request.source)
    # An extension writes the saved config again: that is no change by the user.
    if file and Path(file).resolve() != store.folder.config_file.resolve():
        note = f"{file} has changed since the run was started; its values are compared with the saved config"
        if is_shipped(file):  # an update changed it, not the user
            infos = list(walk(asked))
            words = split_words(request.words, asked, KNOWN_WORDS)
            typed = {field_path(item.path, infos) or item.path for item in words}
            asked = with_saved_free_fields(asked, read_saved_config(store.folder), typed)
    try:
        config, _ = store.adopted(asked)
        if note:
            print(f"note: {note}")
        return config
    except OtherConfigError as error:
        told = refused(error, request, store.folder, asked, store.newest_step(), ranks)
        raise UserError(f"{told}\n{note}" if note else str(told)) from None
