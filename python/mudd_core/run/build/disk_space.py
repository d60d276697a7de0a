"""The disk space for the checkpoints of a run, compared with the free space before training."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mudd_core.base.errors import UserError
from mudd_core.base.units import bytes_text
from mudd_core.checkpoint import space_for
from mudd_core.config import Config
from mudd_core.config.train import save_steps
from mudd_core.run.build.place import ALONE, Place
from mudd_core.run.store.checkpoints import Checkpoints


def checkpoint_bytes(report: Mapping[str, int], place: Place = ALONE) -> int:
    """Return the bytes of a checkpoint. report: the result of MemoryPlan.bytes for one rank of `place`."""
    # A rank has a slice of all weights (mesh.zero=3), or a part of the copy on its node.
    copies = place.world if "gathered" in report else place.on_a_node
    return report["weights"] * copies + report["moments"] * place.world


def refuse_full_disk(config: Config, checkpoints: Checkpoints | None, each: int) -> None:
    """Raise UserError if not even one checkpoint of `each` bytes can be saved."""
    if checkpoints is None or checkpoints.run.read_only or not config.train.save:
        return
    if checkpoints.newest() >= config.train.steps:  # the run has nothing more to save
        return
    need, have = space_for(each), checkpoints.free_bytes()
    if have < need:
        raise UserError(
            f"[workdir] {checkpoints.run}: expected {bytes_text(need)} of free disk space for a checkpoint, got "
            f"{bytes_text(have)}; free some space, choose another disk with --workdir=PATH, or set train.save=false "
            "to train without checkpoints"
        )


def shortage(config: Config, checkpoints: Checkpoints | None, each: int, cache: int = 0) -> str:
    """Return a warning if the run's checkpoints will not fit; an empty string if they do.

    each: the bytes of a checkpoint. cache: the bytes of a token cache that will be built on the same disk.
    """
    if checkpoints is None or checkpoints.run.read_only or not config.train.save:
        return ""
    count, there = most_at_once(config), checkpoints.bytes()
    more, have = max(count * each - there, each) + cache, checkpoints.free_bytes()
    if more <= have:
        return ""
    # A save writes the new checkpoint before it removes an old one, so one more must fit.
    fitting = (have + there - cache) // each - 1
    fewer = 1 <= fitting < (config.train.keep_last or count) and not (
        config.train.keep_every or config.train.save_at
    )
    mends = f"set train.keep_last={fitting}, or " if fewer else ""
    parts = f"up to {count} checkpoints at once" + (f", {bytes_text(cache)} of tokens" if cache else "")
    return (
        f"[train.keep_last] the run needs {bytes_text(more)} more disk space ({parts}), but {checkpoints.run} has "
        f"{bytes_text(have)} free; {mends}choose another disk with --workdir=PATH"
    )


def validation_period(config: Config) -> int:
    """Return the updates from one validation to the next; 0 for a run that validates only at its end."""
    tokens = config.train.batch_size * config.train.seq_len
    return -(-config.eval.every_tokens // tokens) if config.eval.every_tokens else config.train.eval_every


def most_at_once(config: Config) -> int:
    """Return the largest number of checkpoints on disk: the retained ones, plus one during a replacement."""
    train, kept_for_good = config.train, 0
    every = train.save_every
    if train.save_policy == "best":
        every = validation_period(config)
    saves = 1 + train.epochs + (train.steps // every if every else 0)
    if train.keep_best:
        saves += _validations(config)
    extra = sum(step <= train.steps for step in save_steps(train.save_at))
    saves += extra
    if train.keep_every:
        kept_for_good = train.steps // math.lcm(train.keep_every, every or 1)
    kept_for_good += extra
    return min(saves, train.keep_last + kept_for_good + 1 + train.keep_best) if train.keep_last else saves


def _validations(config: Config) -> int:
    """Return the largest number of validations during the run."""
    every = validation_period(config)
    return config.train.steps // every if every else 0
