"""Fields of fine-tuning: the parameters that train, and the low-rank adapters of frozen matrices."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.config.fields import opt

ADAPTERS = "*.lora_a,*.lora_b"  # the parameters that train with tune.method=lora
ALL = "all"


@dataclass(frozen=True)
class TuneConfig:
    """The parameters that train."""

    method: str = opt(
        "full",
        "parameters that train: lora = adapters of the frozen weights in start.load_parameters_path; "
        "full = all, or those in train.trainable; last:N = the last N blocks",
        later=True,
    )


@dataclass(frozen=True)
class LoraConfig:
    """Low-rank adapters: a linear layer computes x W + (alpha / rank) (x A) B, with W frozen (Hu et al. 2021)."""

    rank: int = opt(16, "rank of the adapters: columns of A and rows of B", "columns", low=1, later=True)
    alpha: float = opt(
        32.0, "scale of the adapters: their output is multiplied by alpha / rank", low=0.0, later=True
    )
    targets: str = opt(
        ALL,
        "layers with an adapter; all = every linear one in attention and feed-forward; or names "
        "separated by commas, such as q,v or blocks.*.attn.*; gate_up,down = the experts of a layer",
        later=True,
    )
    dropout: float = opt(
        0.0,
        "dropout probability for the input of A",
        "fraction",
        low=0.0,
        high=1.0,
        later=True,
    )  # must be below 1; rules.py has the rule
    init: str = opt(
        "default",
        "initial values: default = A random, B zero; pissa = the largest singular components of W, "
        "which are subtracted from W",
        choices=("default", "pissa"),
        later=True,
    )
    start_from: str = opt(
        "",
        "adapters to start from: a run that trained adapters, one of its step folders, or a "
        "safetensors file with mudd_core's names; empty = none",
        free=True,
        later=True,
    )

    @property
    def scale(self) -> float:
        """The scale of an adapter's output."""
        return self.alpha / self.rank


def last_blocks(method: str) -> int:
    """Return N of `last:N`; 0 for another method."""
    head, _, count = method.partition(":")
    return int(count) if head == "last" and count.isascii() and count.isdecimal() and len(count) < 10 else 0
