"""The one thing that limits the speed of a run, as a sentence with the setting that helps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mudd_core.base.units import bytes_text
from mudd_core.config import Config
from mudd_core.run.records.phases import Phase
from mudd_core.run.report.start_lines import ASSUMED
from mudd_core.run.report.time_use import TimeUse, time_use
from mudd_core.run.store.run_folder import RunFolder

_LEAST = 0.1  # fraction of the time below which nothing limits
_LEAST_BATCH = 0.25  # for the update, which every run needs
_WANTED = 0.05  # fraction of the time that a longer interval leaves
_LEAST_SECONDS, _LEAST_ENTRIES = 10.0, 2  # of training; a shorter one is mostly its start
_COMPUTE = (Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE, Phase.EVALUATION)
_OFTEN = 10  # the default of train.log_every
_FEW_TOKENS = 256  # in a graph run: its matmuls read each weight for fewer rows than the caches could serve


@dataclass(frozen=True)
class Limit:
    """A cause of lost time. fraction: of the time of the run. text: the cause, after the percentage, and the remedy."""

    name: str
    fraction: float
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {100 * self.fraction:.0f} % of the time {self.text}"


def limit_of(folder: RunFolder, config: Config) -> str:
    """Return the sentence about a run, from its files; '' if nothing limits it or there is too little time to judge."""
    found = limit(time_use(folder), config)
    return "" if found is None else str(found)


def limit(use: TimeUse, config: Config) -> Limit | None:
    """Return the cause that loses the most time; None if none loses enough."""
    if use.total < _LEAST_SECONDS or use.entries < _LEAST_ENTRIES:
        return None
    found = [one for cause in _CAUSES for one in cause(use, config) if one.fraction >= _LEAST]
    return max(found, key=lambda one: one.fraction, default=None)


def _data(use: TimeUse, config: Config) -> Iterator[Limit]:
    fraction = use.fraction(Phase.DATA)
    if fraction < _LEAST:
        return
    workers, working = max(1, config.data.workers), use.load.get("workers", 0.0)
    if working >= 0.5 * workers * fraction:
        free = use.load.get("allowed", 0.0) - use.load.get("threads", 0.0) - use.load.get("others", 0.0)
        more = max(2 * workers, math.ceil(workers * (1 + _per_rest(fraction))))
        help_ = (
            f"data.workers={more}" if free >= workers + 1 else "data.cache=full tokenizes before the training"
        )
        yield Limit("data", fraction, f"waits for tokenizing; {help_}")
    elif working > 0:
        yield Limit("data", fraction, "waits for the files of data.path; copy them to a faster disk")
    elif (rate := use.load.get("read", 0.0)) > 0:
        speed = f"{bytes_text(round(rate))} a second"
        yield Limit(
            "data",
            fraction,
            f"waits for the disk ({speed}); set data.cache_dir to a folder on a faster disk",
        )
    else:
        yield Limit(
            "data",
            fraction,
            "computes batches in Python (data.pipeline); data.pipeline=text reads ids in C++",
        )


def _messages(use: TimeUse, config: Config) -> Iterator[Limit]:
    fraction, least = use.fraction(Phase.MESSAGES), use.load.get("least_wait", 0.0)
    if fraction < _LEAST:
        return
    if least < fraction / 2:
        yield Limit(
            "messages",
            fraction,
            "waits for the slowest rank; give every rank as many free cores (train.threads, --bind-to none)",
        )
        return
    hidden = use.hidden / use.total
    text = f"waits for messages between nodes, {100 * hidden:.0f} % more is hidden"
    if config.mesh.zero == 3:
        yield Limit("messages", fraction, f"{text}; mesh.zero=1 sends fewer bytes, if the model fits")
    else:
        yield Limit(
            "messages", fraction, f"{text}; train.batch_size={2 * config.train.batch_size} computes longer"
        )


def _evaluation(use: TimeUse, config: Config) -> Iterator[Limit]:
    fraction, train = use.fraction(Phase.EVALUATION), config.train
    if fraction < _LEAST:
        return
    if config.eval.every_tokens:
        help_ = f"eval.every_tokens={_times(fraction) * config.eval.every_tokens}"
    elif 0 < train.eval_every < train.steps // 2:
        help_ = f"train.eval_every={_times(fraction) * train.eval_every}"
    else:
        tokens = (config.eval.batch_size or train.batch_size) * train.seq_len
        help_ = f"eval.max_batches={max(1, use.validated // tokens // _times(fraction))}"
    yield Limit("evaluation", fraction, f"validates or samples; {help_}")


def _save(use: TimeUse, config: Config) -> Iterator[Limit]:
    fraction, train = use.fraction(Phase.SAVE), config.train
    if fraction < _LEAST:
        return
    if train.save_policy == "every" and 0 < train.save_every < train.steps:
        help_ = f"train.save_every={_times(fraction) * train.save_every}"
    elif train.save_policy == "best" or train.keep_best:
        help_ = f"train.eval_every={_times(fraction) * max(1, train.eval_every)}"
    else:
        help_ = "set --workdir to a faster disk"
    yield Limit("save", fraction, f"writes checkpoints; {help_}")


def _log(use: TimeUse, config: Config) -> Iterator[Limit]:
    fraction, every = use.fraction(Phase.LOG), config.train.log_every
    if fraction >= _LEAST and every < _OFTEN:
        yield Limit("log", fraction, f"writes log entries; train.log_every={_times(fraction) * every}")


def _callback(use: TimeUse, config: Config) -> Iterator[Limit]:
    fraction = use.fraction(Phase.CALLBACK)
    if fraction >= _LEAST:
        yield Limit("callback", fraction, "runs the caller's code between the updates; call it less often")


def _batch(use: TimeUse, config: Config) -> Iterator[Limit]:
    """Yield the time that does not depend on the batch: the update, the loop, and the overhead of a small graph run."""
    often = config.train.log_every < _OFTEN  # then log entries may be the cause
    fraction = use.fraction(Phase.UPDATE) if often else use.fraction(Phase.UPDATE, Phase.LOG)
    if fraction >= _LEAST_BATCH:
        size = config.train.batch_size * 2 ** math.ceil(math.log2(_per_rest(fraction) * (1 / _LEAST - 1)))
        size = max(size, 2 * config.train.batch_size)
        yield Limit(
            "batch", fraction, f"goes to the update and its loop, whatever the batch; train.batch_size={size}"
        )
    train = config.train
    samples = min(train.micro_batch_size or train.batch_size, train.batch_size)
    tokens = samples * train.seq_len
    if tokens >= _FEW_TOKENS or use.peak >= ASSUMED / 2:
        return
    wanted = 2 ** math.ceil(math.log2(2 * _FEW_TOKENS / train.seq_len))
    help_ = f"train.batch_size={wanted}"
    if samples < train.batch_size:
        help_ = f"train.micro_batch_size={min(wanted, train.batch_size)}"
    lost = use.fraction(Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE) * (1 - use.peak / ASSUMED)
    yield Limit(
        "batch",
        lost,
        f"is lost because {tokens} tokens at once reach {100 * use.peak:.0f} % of the peak; {help_}",
    )


def _memory(use: TimeUse, config: Config) -> Iterator[Limit]:
    fraction = use.load.get("stalled", 0.0)
    if fraction < _LEAST:
        return
    swapped = use.load.get("swapped", 0.0)
    size = f" ({bytes_text(round(swapped))} of it in swap)" if swapped else ""
    samples = min(config.train.micro_batch_size or config.train.batch_size, config.train.batch_size)
    if samples > 1:
        help_ = f"train.micro_batch_size={samples // 2}"
    else:
        help_ = "optim.moment_dtype=bf16" if config.train.recompute else "train.recompute=true"
    yield Limit("memory", fraction, f"waits for memory{size}; {help_}")


def _cores(use: TimeUse, config: Config) -> Iterator[Limit]:
    threads, bound, allowed = (round(use.load.get(name, 0.0)) for name in ("threads", "bound", "allowed"))
    if not threads or not bound:
        return
    busy = use.fraction(*_COMPUTE)
    cores = f"{bound} core{'s' * (bound > 1)}"
    if bound < threads:
        yield Limit(
            "cores",
            busy * (1 - bound / threads),
            f"is lost because {threads} threads share {cores}; train.threads={bound}, or start without taskset",
        )
    elif bound < allowed and "least_wait" not in use.load:
        yield Limit(
            "cores",
            busy * (1 - bound / allowed),
            f"could be saved with all {allowed} cores: this process is bound to {cores}; start it without taskset",
        )
    others = use.load.get("others", 0.0)
    missing = threads + others - bound
    if others >= 0.5 and missing > 0.25:
        # threads that wait for memory would not use the cores of other processes
        free = 1.0 - use.load.get("stalled", 0.0) - use.load.get("cores", 0.0) / threads
        lost = max(0.0, min(busy * min(1.0, missing / threads), free))
        yield Limit(
            "cores",
            lost,
            f"is lost to other processes, which take {others:.1f} of {cores}; end them",
        )


def _times(fraction: float) -> int:
    """Return the factor of an interval after which its work takes the fraction _WANTED of the time."""
    return max(2, math.ceil(_per_rest(fraction) * (1 - _WANTED) / _WANTED))


def _per_rest(fraction: float) -> float:
    """Return the ratio of a part of the time to the rest, at most 99."""
    part = min(0.99, fraction)
    return part / (1 - part)


_CAUSES: tuple[Callable[[TimeUse, Config], Iterator[Limit]], ...] = (
    _data,
    _messages,
    _evaluation,
    _save,
    _log,
    _callback,
    _batch,
    _memory,
    _cores,
)
