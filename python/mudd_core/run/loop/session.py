"""The parts of one run that its loop, updates and saves share."""

from __future__ import annotations

from mudd_core import _core
from mudd_core.base.types import JsonObject
from mudd_core.config import Config, Difference, mesh_of
from mudd_core.run.build.components import Components
from mudd_core.run.build.rows import data_end_note, shortened
from mudd_core.run.build.run_data import add_text
from mudd_core.run.loop import data_place
from mudd_core.run.loop.learning_watch import LearningWatch
from mudd_core.run.loop.state import RunState
from mudd_core.run.ranks.hang_watch import Watch
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.engine import LoopEngine
from mudd_core.run.records.facts import DATA_FACT
from mudd_core.run.records.journal import Journal
from mudd_core.run.report.history import History
from mudd_core.run.report.start_lines import ASSUMED, Start, detail_lines, start_lines
from mudd_core.run.report.style import RunFacts
from mudd_core.run.store.metrics import RecordedValidations, last_peak_share
from mudd_core.run.store.run_store import RunStore


class Session:
    """One run in this process: what it is made of, how far it is, where it writes.

    components: replaced once, when a run of a given model first needs the config's text.
    """

    def __init__(
        self,
        config: Config,
        components: Components,
        store: RunStore | None,
        journal: Journal,
        history: History,
        ranks: Ranks,
        fingerprint: str | None,
        changed: list[Difference],
    ) -> None:
        """fingerprint: of the token cache that a resumed run was started with. changed: fields since then."""
        self.config, self.components = config, components
        self.store, self.journal, self.history, self.ranks = store, journal, history, ranks
        self.changed = changed
        self.job: JsonObject = {}  # what the events of a start say of several ranks
        if ranks.world > 1:
            self.job = {"ranks": ranks.world, "mesh": str(mesh_of(config, ranks.world))}
        self.data_end = components.steps > 0  # the data end before train.steps
        self._warn()
        for note in components.notes:
            journal.said(note)
        if store is not None:
            self.need_text(fingerprint)
        self.state = RunState(config, self.components)
        self.learning = LearningWatch(
            config, lambda: self.components.vocabulary, lambda step, text: journal.warned(text, step)
        )
        self.watch = Watch(ranks, config.dist.hang_timeout, self.components.ideal_step(config))

    def _warn(self) -> None:
        for text in self.components.warnings:
            self.journal.warned(text)

    @property
    def engine(self) -> LoopEngine:
        """The engine that makes the updates."""
        return self.components.engine

    @property
    def cuts_weights(self) -> bool:
        """Whether ranks gather weights for each other, and so run each graph together (mesh.zero=3)."""
        return self.config.mesh.cuts_weights(self.ranks.world)

    @property
    def together(self) -> bool:
        """Whether ranks need each other's weights, and so run each graph together."""
        return self.config.mesh.runs_together(self.ranks.world)

    def end_with_data(self) -> None:
        """Make the last update the end of the run, whose data end earlier than its config."""
        self.journal.said(data_end_note(self.config, self.state.step_done))
        self.data_end = True
        self.config = shortened(self.config, self.state.step_done)
        self.journal.shortened(self.config.train)
        self.state.shorten(self.config)

    def need_text(self, fingerprint: str | None = None) -> None:
        """Read the config's text, where this run has not done so yet."""
        if DATA_FACT not in self.components.facts:
            self.components = add_text(self.components, self.config, fingerprint, self.ranks)
            self._warn()

    def recall(self, recorded: RecordedValidations) -> None:
        """Take over what the run has logged up to the step that it continues from."""
        self.state.recall(recorded)
        self.learning.recall(recorded)

    def reopen_rows(self) -> None:
        """Open the files of the training rows again."""
        self.watch.phase("data", self.state.step_done + 1)
        self.end_rows()
        self.engine.batcher = self.components.reopened_rows()

    def end_rows(self) -> None:
        """End what the training rows have running beside this process."""
        data_place.end_reading(self.engine.batcher)

    def start_lines(self) -> tuple[list[str], list[str]]:
        """Return the lines of a start, and those for the copy of the output alone."""
        start = self._start()
        return start_lines(start), detail_lines(start)

    def _start(self) -> Start:
        parts, step, folder = self.components, self.state.step_done, self.store.folder if self.store else None
        reached = last_peak_share(folder) if folder is not None and step else None
        threads = _core.num_threads()
        return Start(
            config=self.config,
            folder=folder,
            machine=f"{threads} thread{'s' * (threads > 1)}, {_core.isa()}{self.ranks.text}",
            parameters=parts.model.n_parameters,
            vocabulary=parts.model.config.vocab_size,
            tokens=parts.train_tokens,
            validated=parts.validated_tokens,
            has_text=DATA_FACT in parts.facts,
            has_tokenizer=parts.tokenizer is not None,
            step=step,
            seconds=self.state.clock.seconds_ahead(
                step, parts.ideal_step(self.config) / (reached or ASSUMED)
            ),
            measured=reached is not None,
            described=parts.described,
            changed=self.changed,
        )

    def facts(self) -> RunFacts:
        """Return what a style knows of the run."""
        parts = self.components
        return RunFacts(
            self.config,
            self.store.folder if self.store else None,
            parts.flops_per_token,
            parts.peak,
            lambda: parts.model.n_parameters,
            parts.documents,
            self.ranks.world,
        )
