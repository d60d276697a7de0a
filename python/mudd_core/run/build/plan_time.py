"""The number of steps and the speed of a planned run, from its own folder or a similar run next to it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.units import duration
from mudd_core.config import Config
from mudd_core.run.store.json_files import read_object, read_saved_config
from mudd_core.run.store.metrics import rows_of
from mudd_core.run.store.run_folder import RunFolder

_ASSUMED = 0.5  # fraction of the peak if no similar run was measured


def planned_steps(config: Config, folder: RunFolder) -> int | None:
    """Return the updates of the run; None if they depend on the data and no start has counted them yet."""
    if ends_with_data(config):
        return _done(folder)
    if not config.train.epochs:
        return config.train.steps
    saved = _saved(folder)
    return saved.train.steps if saved is not None and saved.train.epochs == config.train.epochs else None


def ends_with_data(config: Config) -> bool:
    """Return True if the run ends with its data. train.steps is then only the upper limit."""
    return config.train.to_data_end and config.data.epochs > 0


def _done(folder: RunFolder) -> int | None:
    """Return the number of updates that the last start of the run counted; None if no start has ended yet."""
    try:
        steps = read_object(folder.summary_file).get("steps")
    except (FormatError, UserError):
        return None
    return steps if isinstance(steps, int) else None


class SpeedOfRuns:
    """The fractions of the measured peak that runs next to a folder reached. Each run is read at most once."""

    def __init__(self, run: RunFolder) -> None:
        self._saved = cache(_saved)
        self._fraction_of = cache(_fraction_of)
        self._folders = list(_measured(run))

    def fraction(self, config: Config) -> tuple[float, str]:
        """Return the expected fraction of the peak, and its source.

        Only a run with the same width, precision and batch size is used, because a tiny model reaches a far smaller
        fraction.
        """
        for folder in self._folders:
            saved = self._saved(folder)
            if saved is None or not _alike(saved, config):
                continue
            if (found := self._fraction_of(folder)) is not None:
                return found, f"measured by the run {folder}, of the same width and batch"
        return _ASSUMED, "no run of this width and batch was measured yet, so half of the peak is assumed"


def fraction_of_peak(config: Config, run: RunFolder) -> tuple[float, str]:
    """Return the fraction of the measured peak that a run is expected to reach, and its source."""
    return SpeedOfRuns(run).fraction(config)


def _fraction_of(folder: RunFolder) -> float | None:
    """Return the median fraction of the peak of a run; None if its log has none."""
    try:
        found = [row.get("peak_share") for row in rows_of(folder)]
    except (FormatError, UserError, OSError):  # a damaged log, perhaps of another run, must not fail a plan
        return None
    fractions = sorted(one for one in found if isinstance(one, float) and one > 0)
    return fractions[len(fractions) // 2] if fractions else None


def _measured(run: RunFolder) -> Iterator[RunFolder]:
    """Yield folders that may contain metrics: the run's own, then the newest ones next to it."""
    yield run
    yield from run.measured_beside()


def _saved(folder: RunFolder) -> Config | None:
    """Return the saved config of a run; None if there is no readable one."""
    try:
        return read_saved_config(folder)
    except (FormatError, UserError):
        return None


def _alike(one: Config, other: Config) -> bool:
    """Return True if two runs have the same family, width, precision, threads and tokens in a batch."""
    return _sizes(one) == _sizes(other)


def _sizes(config: Config) -> tuple[str, int, str, int, int, int]:
    model, train = config.model, config.train
    return model.family, model.d_model, train.precision, train.batch_size, train.seq_len, train.threads


def time_lines(
    config: Config, steps: int | None, seconds: float, speed: tuple[float, float, str], nodes: int
) -> list[str]:
    """Return the time of a step and, if their number is known, of all. speed: (peak, fraction of it, its source)."""
    rate, fraction, source = speed
    a_step = duration(seconds) if seconds >= 60 else f"{seconds:.3g} s"
    total = "" if steps is None else f", {duration(seconds * steps)} in all"
    lines = [
        f"  time          about {a_step} a step{total}:",
        f"                an estimate from {rate / 1e9:,.0f} GFLOP/s, measured now, and {100 * fraction:.0f}% of it",
        f"                ({source}); validation and saving are not in it",
    ]
    if nodes > 1:
        lines.append(f"                {nodes} nodes like this one; the time of their messages is not in it")
    if config.data.mix_until != "steps":  # the lines about the mixture say it
        return lines
    if steps is None and ends_with_data(config):
        lines.append(
            f"  steps         as many as the data have (data.epochs={config.data.epochs}), at most "
            f"{config.train.steps:,}; the start of the run counts them"
        )
    elif steps is None:
        epochs = config.train.epochs
        passes = f"{epochs} passes" if epochs > 1 else "one pass"
        lines.append(
            f"  steps         {passes} over the training sequences (train.epochs); the start of the "
            "run counts them"
        )
    return lines
