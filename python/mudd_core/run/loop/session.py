"""The run of a Trainer: config, model, data, work directory, journal, ranks and progress."""

from __future__ import annotations

from mudd_core.config import Config
from mudd_core.run.build.components import Components
from mudd_core.run.build.rows import shortened
from mudd_core.run.build.run_data import add_text
from mudd_core.run.loop import data_place
from mudd_core.run.loop.state import RunState
from mudd_core.run.ranks.hang_watch import Watch
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.engine import LoopEngine
from mudd_core.run.records.facts import DATA_FACT
from mudd_core.run.records.journal import Journal
from mudd_core.run.records.phases import PhaseClock
from mudd_core.run.store.run_store import RunStore


class Session:
    """One run in this process: its components, state, work directory and journal.

    components: replaced once, when a run with a model that the caller passed first needs the config's data.
    """

    def __init__(
        self,
        config: Config,
        components: Components,
        store: RunStore | None,
        journal: Journal,
        ranks: Ranks,
        fingerprint: str | None,
    ) -> None:
        """Read the data if there is a work directory. fingerprint: the token cache's, at the first start of the run."""
        self.config, self.components = config, components
        self.store, self.journal, self.ranks = store, journal, ranks
        self._warn()
        for note in components.notes:
            journal.said(note)
        if store is not None:
            self.need_text(fingerprint)
        self.state = RunState(config, self.components)
        self.phases = PhaseClock()
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
        """True if weights are sharded, so that ranks gather them and run each graph together (mesh.zero=3)."""
        return self.config.mesh.cuts_weights(self.ranks.world)

    @property
    def together(self) -> bool:
        """True if ranks need each other's weights, and therefore run each graph together."""
        return self.config.mesh.runs_together(self.ranks.world)

    def end_here(self) -> None:
        """Set the end of the run to the last update."""
        self.config = shortened(self.config, self.state.step_done)
        self.journal.shortened(self.config.train)
        self.state.shorten(self.config)

    def need_text(self, fingerprint: str | None = None) -> None:
        """Read the config's data if this run has not read them yet."""
        if DATA_FACT not in self.components.facts:
            self.components = add_text(self.components, self.config, fingerprint, self.ranks)
            self._warn()

    def reopen_rows(self) -> None:
        """Open the files of the training data again."""
        self.watch.phase("data", self.state.step_done + 1)
        self.end_rows()
        self.engine.batcher = self.components.reopened_rows()

    def end_rows(self) -> None:
        """Stop the reader processes and threads of the training data."""
        data_place.end_reading(self.engine.batcher)
