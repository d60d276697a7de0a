"""The last action of a run in a sweep: evaluate the whole validation split for sweep.tsv, then write done.txt."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from mudd_core.base.regular_files import write_text
from mudd_core.config import Config
from mudd_core.run.loop.evaluate import evaluate
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.engine import Evaluator
from mudd_core.run.store.run_folder import RunFolder

TABLE, DONE = "sweep.tsv", "done.txt"


@dataclass(frozen=True)
class Sweep:
    """A run of a sweep. columns: the settings that distinguish it from other runs, for sweep.tsv."""

    columns: Mapping[str, str]

    def is_done(self, folder: RunFolder) -> bool:
        """Return whether the run has finished with its table, so that it is skipped."""
        return (folder.path / DONE).is_file()

    def finish(self, engine: Evaluator, config: Config, folder: RunFolder, step: int, ranks: Ranks) -> str:
        """Evaluate the whole split, write both files and return the table."""
        return _finish(engine, config, folder, step, self.columns, ranks)


def _finish(
    engine: Evaluator, config: Config, folder: RunFolder, step: int, columns: Mapping[str, str], ranks: Ranks
) -> str:
    from mudd_core.data import pipelines
    from mudd_core.run.build.rows import validation_batches

    whole = dataclasses.replace(config, eval=dataclasses.replace(config.eval, max_batches=0))
    text = ranks.in_turn(lambda: pipelines.prepare(whole, progress=lambda *_: None))
    result = evaluate(
        engine,
        validation_batches(whole, text),
        step=step,
        bytes_per_target=text.valid_bytes_per_target,
        ranks=ranks,
        together=config.mesh.runs_together(ranks.world),
    )
    assert result is not None
    row = {**columns, "loss": repr(result.val_loss)}
    table = "\t".join(row) + "\n" + "\t".join(row.values()) + "\n"
    if ranks.first:
        write_text(folder.path / TABLE, table)
        write_text(folder.path / DONE, "done\n")
    return table
