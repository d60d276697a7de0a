"""Config of the muP transformer: models/mup.py, docs/maths/mup.md."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from mudd_core.config.families.heads import Sizes, attention_weights, unused_fields
from mudd_core.config.families.model_config import ModelConfig
from mudd_core.config.fields import LARGEST, opt, with_defaults

DEFAULT_HEAD = 128
# Activations of the feed-forward block: those fused into the matmul, then those with a separate op.
FUSED = ("relu", "sqrelu", "gelu", "silu")
POINTWISE = (
    "relu6",
    "sigmoid",
    "tanh",
    "softplus",
    "log_sigmoid",
    "soft_sign",
    "leaky_relu",
    "hard_sigmoid",
    "hard_silu",
    "hard_tanh",
    "elu",
    "selu",
    "squareplus",
    "mish",
    "sparse_plus",
    "sparse_sigmoid",
)


@dataclass(frozen=True)
class MupConfig(Sizes):
    """mu-Transformer (Lingle 2024): a Transformer whose initialization and rates depend on its width.

    Field names are the original's. optim.rule sets the rates; initialization and logit scale are fields here.
    """

    family: str = opt("mup", "model family", choices=("mup",))
    d_model: int = opt(1024, "width of the residual stream", "channels", low=1)
    n_layer: int = opt(24, "number of blocks", "blocks", low=1, high=10_000)
    d_base: int = opt(
        128,
        "width of the proxy model, for which the learning rates are set; the same for all model sizes",
        "channels",
        low=1,
        effect="training",
    )
    d_head: int = opt(DEFAULT_HEAD, "width of a head; the same for all model sizes", "channels", low=1)
    ff_multiple: float = opt(
        4.0, "inner width of the feed-forward block divided by d_model; the same for all model sizes", low=0.0
    )
    qk_scale: float = opt(
        0.0, "factor of the attention scores; muP needs 1 / d_head; 0 = 1/128, only with d_head=128", low=0.0
    )
    kv_mqa: bool = opt(False, "multi-query attention: one key and value head for all query heads")
    rotary_base: float = opt(
        10000.0, "RoPE theta, the base of the wavelengths; 0 = no position encoding", low=0.0
    )
    attn_act_name: str = opt(
        "softmax",
        "activation of the attention scores; norm_sqrelu and norm_elu divide its results by their "
        "sum, sqrelu and elu by max_seq_len",
        choices=("softmax", "sqrelu", "elu", "norm_sqrelu", "norm_elu"),
    )
    ff_act_name: str = opt(
        "relu",
        "activation of the feed-forward block; swiglu adds a gate matrix",
        choices=("swiglu", *FUSED, *POINTWISE),
    )
    q_init: str = opt(
        "vs",
        "initial query matrix: vs = standard deviation d_model^-1/2; zero = zero",
        choices=("vs", "zero"),
        effect="start",
    )
    r_init: str = opt(
        "vs",
        "initial output matrices of attention and feed-forward: vs = standard deviation fan-in^-1/2; "
        "zero = zero",
        choices=("vs", "zero"),
        effect="start",
    )
    u_init: str = opt(
        "mup",
        "initial head: mup = standard deviation 1/d_model; sp = d_model^-1/2; zero = zero",
        choices=("mup", "sp", "zero"),
        effect="start",
    )
    e_norm: bool = opt(False, "apply RMSNorm to the embedding")
    qk_norm: bool = opt(False, "apply RMSNorm to each query and key head, before rotation")
    norm_eps: float = opt(1e-5, "epsilon that RMSNorm adds to the mean square", low=0.0)
    norm_gains: bool = opt(False, "learn the gains of norms")
    norm_gains_type: str = opt(
        "vector",
        "gains of a norm: vector = one per channel; scalar = one for all channels",
        choices=("vector", "scalar"),
    )
    proj_biases: bool = opt(False, "add biases to all projections")

    @property
    def n_head(self) -> int:
        """Query heads."""
        return self.d_model // self.d_head

    @property
    def n_kv_head(self) -> int:
        """Key and value heads."""
        return 1 if self.kv_mqa else self.n_head

    @property
    def d_ff(self) -> int:
        """Inner width of the feed-forward block."""
        return int(self.ff_multiple * self.d_model)

    @property
    def scale(self) -> float:
        """The factor of query times key."""
        return self.qk_scale or 1.0 / DEFAULT_HEAD

    def matrix_weights(self) -> int:
        """Return the number of weights in the blocks that enter a matmul for every token."""
        matrices = 3 if self.ff_act_name == "swiglu" else 2
        return self.n_layer * (attention_weights(self) + matrices * self.d_model * self.d_ff)

    def settled(self) -> MupConfig:
        """Return the config with derived values for fields of 0 (automatic), and defaults for fields without effect."""
        resolved = replace(self, qk_scale=self.scale)
        inert = [*unused_fields(self), *([] if self.norm_gains else ["norm_gains_type"])]
        settled: MupConfig = with_defaults(resolved, inert)
        return settled

    def faults(self) -> list[str]:
        """Return the broken rules between fields, one message each."""
        faults = []
        if self.d_model % self.d_head:
            faults.append(f"model.d_model: expected a multiple of d_head ({self.d_head}), got {self.d_model}")
        if self.ff_multiple * self.d_model > LARGEST:
            faults.append(
                f"model.ff_multiple: expected an inner width (ff_multiple * d_model) of at most {LARGEST}, "
                f"got {self.ff_multiple} * {self.d_model}"
            )
        elif self.d_ff < 1:
            faults.append(f"model.ff_multiple: expected at least 1 / d_model, got {self.ff_multiple}")
        if self.rotary_base and (self.d_head % 2 or self.rotary_base < 1):
            faults.append("model.rotary_base: expected 0, or at least 1 and an even d_head")
        if not self.qk_scale and self.d_head != DEFAULT_HEAD:
            faults.append(ask_for_scale(self.d_head))
        return faults

    def overridden(self, before: ModelConfig, fields: Collection[str]) -> str | None:
        """Return the error of changing these fields of `before` to get this config; None if the change is valid."""
        if self.d_head != before.d_head and "qk_scale" not in fields and self.qk_scale:
            return ask_for_scale(self.d_head)
        return None


def ask_for_scale(d_head: int) -> str:
    """Return the message for a config that changes d_head alone."""
    return (
        f"model.qk_scale: d_head is {d_head} now, and muP scales query times key by 1 / d_head = "
        f"{1 / d_head:g}; the field does not follow d_head, so set model.qk_scale={1 / d_head:g}"
    )
