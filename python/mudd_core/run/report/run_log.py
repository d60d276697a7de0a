"""Output of a run: lines on the terminal; rows, events and the summary in the work directory, where there is one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace

from mudd_core.base.errors import SaveError
from mudd_core.base.show.printable import beginning_of
from mudd_core.checkpoint import Checkpoint
from mudd_core.config import Config, Difference, Mesh, TrainConfig
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.events import (
    BatchSums,
    Rewind,
    Sample,
    SavedStep,
    StepRecord,
    Summary,
    Validation,
)
from mudd_core.run.report.folder_log import FolderLog
from mudd_core.run.report.progress import Progress, step_fields
from mudd_core.run.report.screen import Screen
from mudd_core.run.report.start_lines import Start, detail_lines, start_lines
from mudd_core.run.report.style import ComplianceLog, RunFacts, Style, compliance_log, has_own_start, style_of
from mudd_core.run.report.tracker import Tracker, tracker_mode
from mudd_core.run.store.metrics import numbers_of
from mudd_core.run.store.run_store import RunStore


class RunLog:
    """Takes what happens in a training loop, in its order. Of several ranks the first one prints."""

    def __init__(
        self,
        progress: Progress,
        store: RunStore | None,
        config: Config,
        ranks: Ranks,
        mesh: Mesh,
        fields: Mapping[str, object] | None = None,
    ) -> None:
        """fields: of another program's config, by name, for the first lines of its style."""
        self._store, self._train = store, config.train
        self._prints = ranks.first
        self._screen = Screen(progress, waits=has_own_start(config), prints=ranks.first)
        self._fields = fields or {}
        self._files = FolderLog(store, {"ranks": ranks.world, "mesh": str(mesh)} if ranks.world > 1 else {})
        self._unlogged: StepRecord | None = None  # the last update, where it was not one to log
        self._style: Style | None = None
        self._tracker: Tracker | None = None
        self._benchmark: ComplianceLog | None = None
        self._world = ranks.world

    def watch_clock(self, config: Config) -> None:
        """Begin the compliance log if the config has one: all that comes from here on is on its clock."""
        if self._prints and self._store is not None:
            self._benchmark = compliance_log(config, self._store.folder, self.say)

    def use(self, facts: RunFacts) -> None:
        """Print in the style of the run's config from here on."""
        self._style = style_of(replace(facts, fields=self._fields)) if self._prints else None
        if self._style is not None and not self._style.ours:
            self._screen.leave_lines_to_style()

    def say(self, text: str) -> None:
        """A line that stays."""
        self._screen.say(text)

    def _say_all(self, lines: list[str]) -> None:
        for line in lines:
            self.say(line)

    def warn(self, texts: tuple[str, ...]) -> None:
        """Lines on standard error, each once in a run of this process, and events once there is a file for them."""
        for text in texts:
            self._screen.warn(text)

    def warn_at(self, step: int, text: str) -> None:
        """A line on standard error and an event, after this update."""
        self._screen.warn(text)
        self._files.warned(step, text)

    def started(self) -> None:
        """A new run."""
        self._files.started(self._screen.warned, {} if self._style is None else self._style.texts())
        self._begin(0)

    def _begin(self, step: int) -> None:
        """What a start and a resume have in common."""
        if self._style is None:
            return
        if self._benchmark is not None:
            self._benchmark.started(self._style.facts.documents, step, self._world)
        self._say_all(self._style.started())
        facts = self._style.facts
        if self._store is not None and tracker_mode(facts.config.log) != "off":
            self._tracker = Tracker(facts.config, self._store.folder, self._store.run_id)

    def warn_passed_over(self, checkpoint: Checkpoint) -> None:
        """What a run will go on from, and what it could not."""
        for passed in checkpoint.passed_over:
            self.say(f"warning: {passed}")

    def resumed(self, found: Checkpoint, changed: list[Difference]) -> None:
        """A run goes on from a checkpoint, with changed fields of its config."""
        if not self._screen.waits:  # the line of the schedule says it
            fields = ", ".join(f"{change.path}={change.asked}" for change in changed)
            self.say(f"resumed from step {found.step} ({found.path})" + (f" with {fields}" if fields else ""))
        self._files.resumed(found.step, changed, self._screen.warned)
        if self._style is not None:
            self._say_all(self._style.restored(found))
        self._begin(found.step)

    def opened(self, start: Callable[[], Start]) -> None:
        """The start has succeeded: print its lines where the style is ours, and what waited for them."""
        if not self._screen.waits:
            return
        if self._screen.shows:
            found = start()
            self._screen.open(start_lines(found), detail_lines(found))
        else:
            self._screen.open((), ())

    def restored(self, found: SavedStep) -> None:
        """The style's lines about the checkpoint that a run continues from."""
        if self._style is not None:
            self._say_all(self._style.restored(found))

    def shorten(self, train: TrainConfig) -> None:
        """Take over the length of a run whose data end earlier than its config."""
        self._train = train

    def took_step(self, record: StepRecord, seconds_left: float) -> bool:
        """An update, drawn, and logged where it is a step to log; whether it was."""
        train = self._train
        logged = record.step % train.log_every == 0 or record.step == train.steps
        if self._benchmark is not None:
            self._benchmark.took_step(record)
        style = self._style
        self._screen.step(step_fields(record.row(), train.steps, seconds_left), logged=logged)
        self._unlogged = None if logged else record
        if logged:
            self._files.step(record)
        if style is not None:
            self._say_all(style.step(record))
            written = dict(numbers_of("train", record.row())) if logged else {}  # by the store
            tags = {name: value for name, value in style.scalars(record).items() if name not in written}
            self._files.tags(record.step, tags)
            self._files.object(style.object(record))
            if logged and self._tracker is not None:
                self._tracker.log(style.tracked(record), record.step)
        return logged

    def _log_last_step(self) -> None:
        """Log the last update of a run that ends before train.steps, which is none of train.log_every."""
        record, self._unlogged = self._unlogged, None
        if record is not None:
            self._files.step(record)
            if self._style is not None and self._tracker is not None:
                self._tracker.log(self._style.tracked(record), record.step)

    def source_lost(self, step: int, error: OSError, retry: int, seconds: float) -> None:
        """The data of a step could not be read; the run waits and tries again."""
        place, reason = str(error.filename or "the data"), os.strerror(error.errno or 0)
        self.say(f"warning: step {step}: {place}: {reason}; retry {retry} in {seconds:.0f} s")
        self._files.source_lost(step, place, reason, retry, seconds)

    def skipped(self, step: int, reason: str, where: str) -> None:
        """An update that does not count; where: the first number that is not finite, '' if not searched."""
        self.say(
            f"step {step}: {reason}; the update is skipped"
            + (f"; the first bad number is in {where}" if where else "")
        )
        self._files.skipped(step, reason, where)

    def rewound(self, rewind: Rewind, count: int, allowed: int) -> None:
        """A run that went back to a checkpoint."""
        self.say(
            f"step {rewind.from_step + 1}: back to the checkpoint of step {rewind.to_step} (rewind {count} of "
            f"{allowed}); batches {rewind.first_batch} to {rewind.last_batch} are left out"
        )
        self._unlogged = None
        self._files.rewound(rewind)

    def validating(self, step: int) -> None:
        """A validation that is due begins."""
        if self._benchmark is not None:
            self._benchmark.evaluating(step)
        if self._style is not None:
            self._say_all(self._style.validating())

    def batch_validated(self, sums: BatchSums) -> None:
        """One batch of a validation that is due."""
        if self._style is not None:
            self._say_all(self._style.batch_validated(sums))

    def validated(self, result: Validation) -> None:
        """A validation that was due."""
        if self._benchmark is not None:
            self._benchmark.validated(result)
        self._files.validated(result)
        style = self._style
        if style is not None:
            self._say_all(style.validated(result))
            self._files.tags(result.step, style.eval_scalars(result))
            self._files.result(style.result(result))
            if self._tracker is not None:
                self._tracker.log(style.eval_tracked(result), result.step)
            if not style.ours:
                return
        self.say(
            f"step {result.step}: validation loss {result.val_loss:.4f}, "
            f"{result.text} ({result.seconds:.1f} s)"
        )

    def sampled(self, sample: Sample) -> None:
        """A text of sample.every: in our own style one line, its beginning."""
        self._files.sampled(sample)
        if self._style is not None and self._style.ours:
            self.say(f"step {sample.step}: sample {beginning_of(sample.prompt + sample.text)}")

    def not_sampled(self, step: int, reason: str) -> None:
        """A text that was due and failed; the run goes on."""
        self.say(f"note: step {step}: no sample: {reason}")
        self._files.not_sampled(step, reason)

    def saved(self, step: int, seconds: float) -> None:
        """A checkpoint was committed. seconds: that it took."""
        self._files.saved(step, seconds)
        if self._style is not None and self._store is not None:
            self._say_all(self._style.saved(step))

    def save_failed(self) -> None:
        """The run goes on, and tries again when the next save is due."""
        assert self._store is not None
        self.say(f"warning: {self._store.save_error}")

    def ended(self, summary: Summary) -> None:
        """A call of fit() that reached its end, or was stopped."""
        if self._benchmark is not None:
            self._benchmark.ended(summary)
            self._end_benchmark()
        if not summary.stopped:
            self._log_last_step()
        self._files.ended(summary)
        if self._tracker is not None:
            self._tracker.finish(asdict(summary))
            self._tracker = None
        self._screen.close()

    def close(self) -> None:
        """End the tracking of a run that did not reach its end; SaveError if the MLPerf log cannot be written."""
        if self._tracker is not None:
            self._tracker.close()
            self._tracker = None
        self._end_benchmark()

    def broke_off(self) -> None:
        """A call of fit() that an error has ended."""
        self._screen.wipe()
        with contextlib.suppress(SaveError):  # the error that is on its way counts
            self._end_benchmark()

    def _end_benchmark(self) -> None:
        if self._benchmark is not None:
            benchmark, self._benchmark = self._benchmark, None
            benchmark.close()
