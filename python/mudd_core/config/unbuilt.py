"""Fields that exist for the commands of the original programs and are not built yet: other values are refused."""

from __future__ import annotations

from mudd_core.config.fields import walk
from mudd_core.config.schema import Config

_UNBUILT = frozenset(
    {
        *(f"data.{name}" for name in ("pipeline", "format", "eval_path", "eval_match", "dataset")),
        *(
            f"data.{name}"
            for name in ("dataset_config", "split", "column", "seed", "shuffle", "buffer", "workers")
        ),
        *(
            f"data.{name}"
            for name in ("files_per_group", "epochs", "zero_loss", "repeat_batch", "retries", "cache")
        ),
        *(f"train.{name}" for name in ("epochs", "keep_every", "save", "save_policy", "profile")),
        *("optim.schedule_steps", "sample.window", "storage.map"),
        *(f"eval.{name}" for name in ("protocol", "documents", "at_start", "every_tokens", "target_loss")),
        *(f"log.{name}" for name in ("style", "compat", "weights", "flush_every", "metrics_file", "mllog")),
        *(f"log.wandb{name}" for name in ("", "_project", "_entity", "_dir", "_run")),
    }
)
_DEFAULTS = {info.path: info.value for info in walk(Config()) if info.path in _UNBUILT}


def unbuilt_faults(config: Config) -> list[str]:
    """One message for each such field that is set; keep_last=0 is one of them."""
    faults = [
        f"{info.path}={info.value} is not built yet; leave it at {_DEFAULTS[info.path]!r}"
        for info in walk(config)
        if info.path in _DEFAULTS and info.value != _DEFAULTS[info.path]
    ]
    if config.train.keep_last == 0:
        faults.append("train.keep_last=0 is not built yet; give a number of checkpoints")
    return faults
