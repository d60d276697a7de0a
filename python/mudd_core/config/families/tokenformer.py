"""Config of TokenFormer and its baseline: models/tokenformer.py, docs/maths/tokenformer.md."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mudd_core.config.families.heads import Sizes, attention_weights, head_faults, head_width, with_heads
from mudd_core.config.fields import opt, with_defaults

SLOT_NORMS = ("l2_norm_gelu", "gelu_l2_norm", "l2_norm", "softmax", "gelu", "gelu_layer_norm")
# The epsilon of each normalization in the JAX program (docs/maths/tokenformer.md, 1.2).
_EPS = {"l2_norm_gelu": 1e-5, "gelu_layer_norm": 1e-6}
# The fields of slots, which no other family has.
SLOT_FIELDS = (
    "slot_num",
    "proj_slot_num",
    "ffn_slot_num",
    "normalize_type",
    "gelu",
    "slot_eps",
    "zoom_dim",
    "qkv_scale_factor",
    "proj_scale_factor",
    "ffn_scale_factor",
    "keep_scores",
)
# The fields that the other kind of block does not use.
_OF_SLOTS = (*SLOT_FIELDS, "qkv_bias", "proj_bias", "ffn_bias")
_OF_DENSE = ("d_ff", "mlp_activation")


@dataclass(frozen=True)
class TokenFormerConfig(Sizes):
    """TokenFormer: projections and feed-forward attend to learned tokens ("slots"); norms have no parameters."""

    family: str = opt("tokenformer", "model family", choices=("tokenformer",))
    n_head: int = opt(4, "number of attention heads", "heads", low=1)
    d_head: int = opt(0, "width of a head; 0 = d_model / n_head", "channels", low=0)
    block: str = opt(
        "pattention",
        "pattention = projections attend to slots; dense = the baseline of gpt2.yml (matrices with "
        "biases, LayerNorms with parameters)",
        choices=("pattention", "dense"),
    )
    slot_num: int = opt(
        192,
        "number of parameter tokens (a key and a value each) in each of the projections q, k and v",
        "slots",
        low=1,
    )
    proj_slot_num: int = opt(
        0, "number of parameter tokens in the output projection; 0 = slot_num", "slots", low=0
    )
    ffn_slot_num: int = opt(
        0, "number of parameter tokens in the feed-forward block; 0 = 4 slot_num", "slots", low=0
    )
    normalize_type: str = opt(
        "l2_norm_gelu",
        "function that is applied to the scores of the slots, in place of softmax in attention",
        choices=SLOT_NORMS,
    )
    gelu: str = opt(
        "tanh",
        "gelu of the scores: tanh = approximation, as in the JAX program; erf = exact, as in the "
        "NeoX program",
        choices=("tanh", "erf"),
    )
    slot_eps: float = opt(
        -1.0,
        "epsilon that is added to the norm of the scores; -1 = the JAX program's value; the NeoX "
        "program has 0",
        low=-1.0,
    )
    zoom_dim: float = opt(
        0.0,
        "scores are scaled by sqrt(zoom_dim), in the feed-forward by sqrt(4 zoom_dim); 0 = by "
        "sqrt(number of slots)",
        "slots",
        low=0.0,
    )
    qkv_scale_factor: float = opt(1.0, "factor of the activated scores in q, k and v")
    proj_scale_factor: float = opt(1.0, "factor of the activated scores in the output projection")
    ffn_scale_factor: float = opt(1.0, "factor of the activated scores in the feed-forward")
    qkv_bias: bool = opt(False, "add biases to the slots' scores and to the outputs of q, k and v")
    proj_bias: bool = opt(False, "add biases to the slots' scores and to the output of the output projection")
    ffn_bias: bool = opt(False, "add biases to the slots' scores and to the output of the feed-forward")
    drop_path: float = opt(
        0.0,
        "probability that a sequence skips a layer's residual branch; training only",
        "fraction",
        low=0.0,
        high=1.0,
        effect="training",
    )
    keep_scores: bool = opt(
        True,
        "store the scores for the backward pass; false = recompute them: less memory, the same bits",
        free=True,
    )
    d_ff: int = opt(0, "dense block: inner width of the feed-forward; 0 = 4 d_model", "channels", low=0)
    mlp_activation: str = opt(
        "silu",
        "dense block: activation of the feed-forward",
        choices=("relu", "squared_relu", "silu", "gelu_tanh", "gelu_erf"),
    )
    positions: str = opt(
        "none",
        "position encoding: none = only the causal mask; sinusoidal and learned = added to the "
        "embedding; rotary = RoPE",
        choices=("none", "sinusoidal", "learned", "rotary"),
    )
    rope_base: float = opt(10000.0, "rotary: RoPE theta, the base of the wavelengths", low=1.0)
    rope_fraction: float = opt(
        0.25, "rotary: fraction of each head that is rotated", "fraction", low=0.0, high=1.0
    )
    norm_eps: float = opt(1e-5, "epsilon that LayerNorm adds to the variance", low=0.0)
    gain_offset: float = opt(
        1.0,
        "constant that is added to the gain of a LayerNorm: 1 in the JAX program, 0 in the NeoX program",
        low=0.0,
        high=1.0,
    )
    tie_embeddings: bool = opt(True, "the head and the embedding share one matrix (tied embeddings)")
    normalize_logits: bool = opt(True, "divide the logits of a tied head by sqrt(d_model)")
    init: str = opt(
        "jax",
        "standard deviation of initial values: jax = 1 / sqrt(fan-in); neox = 0.02, and 2 / (n_layer "
        "sqrt(d_model)) for values of slots",
        choices=("jax", "neox"),
        effect="start",
    )

    def slots(self, group: str) -> int:
        """Return the slots of a projection of the group qkv, proj or ffn, with zeros resolved."""
        if group == "ffn":
            return self.ffn_slot_num or 4 * self.slot_num
        return (self.proj_slot_num if group == "proj" else 0) or self.slot_num

    def inner(self) -> int:
        """Return the inner width of the dense block's feed-forward, with 0 resolved."""
        return self.d_ff or 4 * self.d_model

    def score_eps(self) -> float:
        """Return the epsilon added to the norm of the scores, with -1 resolved."""
        return self.slot_eps if self.slot_eps >= 0 else _EPS.get(self.normalize_type, 1e-8)

    @property
    def positions_end(self) -> bool:
        """True if positions end at max_seq_len, because they come from a table."""
        return self.positions != "rotary"

    def matrix_weights(self) -> int:
        """Return the number of weights in the blocks that enter a matmul for every token."""
        if self.block == "dense":
            return self.n_layer * (attention_weights(self) + 2 * self.d_model * self.inner())
        heads = self.n_head * head_width(self)
        qkv = 3 * self.slots("qkv") * (self.d_model + heads)
        proj = self.slots("proj") * (heads + self.d_model)
        return self.n_layer * (qkv + proj + 2 * self.slots("ffn") * self.d_model)

    def settled(self) -> TokenFormerConfig:
        """Return the config with derived values for fields of 0 (automatic), and defaults for fields without effect."""
        resolved = replace(
            with_heads(self),
            proj_slot_num=self.slots("proj"),
            ffn_slot_num=self.slots("ffn"),
            slot_eps=self.score_eps(),
            d_ff=self.inner(),
        )
        inert = list(_OF_SLOTS if self.block == "dense" else _OF_DENSE)
        inert += [] if self.positions == "rotary" else ["rope_base", "rope_fraction"]
        inert += [] if self.tie_embeddings else ["normalize_logits"]
        inert += ["gelu"] if self.normalize_type in ("l2_norm", "softmax") else []
        inert += ["slot_eps"] if self.normalize_type in ("softmax", "gelu") else []
        return with_defaults(resolved, inert)

    def faults(self) -> list[str]:
        """Return the broken rules between fields, one message each."""
        faults = head_faults(self)
        if faults:
            return faults
        rotary = head_width(self) * self.rope_fraction
        if self.positions == "rotary" and (rotary < 2 or int(rotary) != rotary or int(rotary) % 2):
            faults.append(
                f"model.rope_fraction: expected an even number of rotated channels of {head_width(self)}, "
                f"got {rotary:g}"
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            faults.append(f"model.d_model: expected an even width for sinusoids, got {self.d_model}")
        if self.block == "dense" and self.drop_path > 0:
            faults.append("model.drop_path: expected 0, because the dense baseline has no drop_path")
        if -1 < self.slot_eps < 0:
            faults.append(f"model.slot_eps: expected -1 or a number from 0, got {self.slot_eps:g}")
        return faults
