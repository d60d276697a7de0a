"""Fine-tuning: what of a model learns, and the low-rank adapters beside its frozen matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mudd_core.config.fields import opt
from mudd_core.config.mesh import PISSA

if TYPE_CHECKING:
    from mudd_core.config.schema import Sections

ADAPTERS = "*.lora_a,*.lora_b"  # the parameters that learn under tune.method=lora
ALL = "all"


@dataclass(frozen=True)
class TuneConfig:
    """What learns."""

    method: str = opt(
        "full",
        "lora: adapters beside the frozen weights of start.load_parameters_path; full: all parameters, or those of "
        "train.trainable; last:N: the last N blocks",
        later=True,
    )


@dataclass(frozen=True)
class LoraConfig:
    """Low-rank adapters: a linear layer computes x W + (alpha / rank) (x A) B, with W frozen (Hu et al. 2021)."""

    rank: int = opt(16, "columns of A and rows of B", "columns", low=1, later=True)
    alpha: float = opt(32.0, "the adapter's output is multiplied by alpha / rank", low=0.0, later=True)
    targets: str = opt(
        ALL,
        "linear layers that get an adapter: all of attention and feed-forward, or names with commas between them, such "
        "as q,v or blocks.*.attn.*",
        later=True,
    )
    dropout: float = opt(
        0.0,
        "probability of dropping a number of x on the way to A",
        "fraction",
        low=0.0,
        high=1.0,
        later=True,
    )  # below 1: tune_faults
    init: str = opt(
        "default",
        "initial values: default = A random, B zero; pissa = the largest singular values of W, which W then lacks",
        choices=("default", "pissa"),
        later=True,
    )
    start_from: str = opt(
        "",
        "adapters to begin with instead: a run of adapters, a step of one, or safetensors by our names; empty = none",
        free=True,
        later=True,
    )

    @property
    def scale(self) -> float:
        """The factor of what an adapter adds."""
        return self.alpha / self.rank


def lora_of(config: Sections) -> LoraConfig | None:
    """The adapters that a run has, if it trains some."""
    return config.lora if config.tune.method == "lora" else None


def last_blocks(method: str) -> int:
    """N of `last:N`; 0 for another method."""
    head, _, count = method.partition(":")
    return int(count) if head == "last" and count.isascii() and count.isdecimal() and len(count) < 10 else 0


def trained_patterns(config: Sections) -> str:
    """The patterns of names that train, as train.trainable has them; empty: all."""
    method = config.tune.method
    if method == "lora":
        return ADAPTERS
    if count := last_blocks(method):
        layers = config.model.n_layer
        return ",".join(f"blocks.{layer}.*" for layer in range(layers - count, layers))
    return config.train.trainable


def tune_faults(config: Sections) -> list[str]:
    """The broken rules of the sections tune and lora."""
    method, lora, start, faults = config.tune.method, config.lora, config.start, list[str]()
    count = last_blocks(method)
    if method not in ("lora", "full") and not count:
        return [f"tune.method: expected lora, full or last:N with N blocks, such as last:2, got '{method}'"]
    if count > config.model.n_layer:
        faults.append(
            f"tune.method: expected at most last:{config.model.n_layer} (model.n_layer), got '{method}'"
        )
    if method != "full" and config.train.trainable:
        faults.append(f"train.trainable: tune.method={method} says what trains; leave one of the two out")
    if lora.dropout >= 1:
        faults.append(f"lora.dropout: expected less than 1, got {lora.dropout:g}")
    if not lora.targets.strip(" ,"):
        faults.append("lora.targets: expected all, or names of linear layers such as q,v, got none")
    if method != "lora":
        return faults
    if not start.load_parameters_path:
        faults.append(
            "start.load_parameters_path: tune.method=lora needs the base model that adapters are for"
        )
    if lora.init == "pissa" and not lora.alpha > 0:
        faults.append(f"lora.alpha: expected more than 0 for lora.init=pissa, got {lora.alpha:g}")
    if lora.init == "pissa" and lora.start_from:
        faults.append(
            "lora.start_from: lora.init=pissa takes adapters out of the base; leave one of the two out"
        )
    if lora.init == "pissa" and config.mesh.zero == 3:
        faults.append(f"lora.init: {PISSA.why}")
    for name in ("keep_optimizer", "keep_step"):
        if getattr(start, name):
            faults.append(f"start.{name}: tune.method=lora takes weights alone; leave it out")
    return faults
