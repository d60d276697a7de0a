"""Advice for a run that needs too much memory: the smallest change of settings that fits, found by planning."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from itertools import chain

from mudd_core.base.errors import UserError
from mudd_core.base.units import bytes_text
from mudd_core.config import Config, shard_count
from mudd_core.config.fields import replace_path
from mudd_core.config.replaced import override
from mudd_core.config.train import MICRO_BATCH_SIZE

SMALLER = (
    "no batch is small enough, because weights, gradients and moments do not shrink with it: use a "
    "smaller model (model.d_model, model.n_layer, model.ngram_rows, data.vocab_size) or a machine with more memory"
)
NONE_FITS = "no setting makes this model fit, not even smaller moments (weights and gradients are fp32)"
_SMALLER = "this trains a smaller model"
Changes = dict[str, int | bool | str]
_FIRST: Changes = {"optim.moment_dtype": "bf16"}
_SECOND: Changes = {"optim.second_moment_dtype": "bf16"}
_FACTORED: Changes = {"optim.second_moment": "factored", "optim.second_moment_dtype": "fp32"}
# The moments in smaller forms, mildest first.
_MOMENTS: tuple[Changes, ...] = (_FIRST, _SECOND, {**_FIRST, **_SECOND}, _FACTORED, {**_FIRST, **_FACTORED})
_SPARE: Changes = {"train.recompute": True, "eval.batch_size": 1}


def _halves(number: int) -> Iterator[int]:
    while number > 1:
        number //= 2
        yield number


def _same_numbers(config: Config) -> Iterator[Changes]:
    """Yield changes that do not affect the training results, mildest first."""
    train = config.train
    recompute: list[Changes] = [{}] if train.recompute else [{}, {"train.recompute": True}]
    now = min(train.micro_batch_size or train.batch_size, train.batch_size)
    smallest = max(1, train.batch_size // shard_count(config))  # a graph run has at least one shard
    micro: list[Changes] = [{}]
    if train.batch_size % shard_count(config) == 0:
        micro += [{MICRO_BATCH_SIZE: size} for size in _halves(now) if size >= smallest]
    yield from ({**few, **again} for few in micro for again in recompute if few or again)
    if (config.eval.batch_size or train.batch_size) > 1:
        yield from ({**few, **again, "eval.batch_size": 1} for few in micro for again in recompute)


def _other_numbers(config: Config) -> Iterator[Changes]:
    """Yield changes that affect the training results, mildest first."""
    train = config.train
    spare: Changes = {"train.recompute": True, "eval.batch_size": 1}
    if train.precision == "fp32":
        yield {"train.precision": "bf16"}
        spare["train.precision"] = "bf16"
    for size in _halves(train.batch_size):
        yield {"train.batch_size": size, **spare}
        if size > 1:
            yield {"train.batch_size": size, MICRO_BATCH_SIZE: 1, **spare}
    for length in _halves(train.seq_len):
        yield {"train.seq_len": length, "train.batch_size": 1, **spare}


def _smaller_models(config: Config) -> Iterator[list[Changes]]:
    """Yield changes to a smaller model: fewer blocks, then narrower ones.

    Each list is for one model: first with the same batch, and last with the batch that needs the least memory.
    """
    spare: Changes = {"train.recompute": True, "eval.batch_size": 1}
    bound = MICRO_BATCH_SIZE in config.bound_fields
    batches: list[Changes] = [
        {},
        {MICRO_BATCH_SIZE: 1, **spare},
        {"train.batch_size": 1, **({} if bound else {MICRO_BATCH_SIZE: 0}), **spare},
    ]
    sizes: list[Changes] = [{"model.n_layer": blocks} for blocks in _halves(config.model.n_layer)]
    least = sizes[-1] if sizes else {}
    if "d_ff" in {field.name for field in dataclasses.fields(config.model)}:
        sizes += [{**least, "model.d_ff": width} for width in _halves(config.model.d_ff) if width >= 64]
    yield from ([{**size, **batch} for batch in batches] for size in sizes)


def _changed(config: Config, changes: Changes) -> Config:
    for path, value in changes.items():
        config = replace_path(config, path, value)
    return config


def _smaller_moments(config: Config, over: int, moments: int) -> Iterator[Changes]:
    """Yield changes to smaller moments, mildest first. over: bytes to save. moments: the bytes of all moments now."""
    now = config.optim
    for changes in _MOMENTS:
        own = {
            path: value for path, value in changes.items() if getattr(now, path.rpartition(".")[2]) != value
        }
        saved = moments - moments * _changed(config, own).optim.moment_bytes / now.moment_bytes
        if saved > 0 and saved >= over:
            yield own
            yield {**own, **_SPARE}


def advice(
    config: Config, bytes_of: Callable[[Config], int], have: int, settled: int, moments: int = 0
) -> str:
    """Return advice on reducing memory, for the user.

    bytes_of: returns the bytes for a config; raises UserError for an invalid config. have: the available bytes.
    settled: bytes that do not depend on the batch. moments: the part of `settled` that smaller moments reduce.
    """

    def need(changes: Changes) -> int | None:  # None: an invalid combination of settings
        if any(path in config.bound_fields for path in changes):
            return None
        try:
            return bytes_of(_changed(config, changes))
        except UserError:
            return None

    candidates = [(changes, "the training stays the same") for changes in _same_numbers(config)]
    candidates += [(changes, "this changes the training") for changes in _other_numbers(config)]
    candidates = candidates if settled <= have else []
    if moments:
        smaller_moments = _smaller_moments(config, settled - have, moments)
        candidates += [(changes, "this changes the training") for changes in smaller_moments]
    smaller = (
        (changes, _SMALLER)
        for model in _smaller_models(config)
        if ((least := need(model[-1])) is None or least <= have)  # one plan is enough to exclude a model
        for changes in model
    )
    for changes, remark in chain(candidates, smaller):
        found = need(changes)
        if found is not None and found <= have:
            words = " ".join(override(path, value) for path, value in changes.items())
            none = f"{NONE_FITS}; " if remark == _SMALLER else ""
            return f"{none}set {words}: it then needs {bytes_text(found)}, and {remark}"
    return f"{NONE_FITS}; {SMALLER}"
