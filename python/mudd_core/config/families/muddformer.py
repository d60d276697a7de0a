"""Config of MUDDFormer and its ablations: models/muddformer.py, docs/maths/muddformer.md."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from mudd_core.config.families.experts import ExpertFields
from mudd_core.config.families.heads import HeadSizes, attention_weights, head_faults, head_width, with_heads
from mudd_core.config.fields import opt, with_defaults

STREAMS = "qkvr"  # inputs of a block: query, key, value, residual


@dataclass(frozen=True)
class _Fields(HeadSizes):
    """Fields that are listed before the expert fields."""

    family: str = opt("muddformer", "model family", choices=("muddformer",))
    n_layer: int = opt(6, "number of blocks", "blocks", low=1, high=511)
    d_ff: int = opt(
        704,
        "inner width of the feed-forward part (its mean over the blocks with ffn_realloc), or of one expert",
        "channels",
        low=1,
    )
    ffn_realloc: bool = opt(
        True,
        "let inner widths grow from 0.5 d_ff to 1.5 d_ff over the blocks, in multiples of 128; "
        "experts always have width d_ff",
    )
    block: str = opt(
        "llama",
        "llama = RMSNorm, SwiGLU; pythia = LayerNorm, biases, GELU, attention parallel to feed-forward",
        choices=("llama", "pythia"),
    )
    rope_base: float = opt(10000.0, "RoPE theta, the base of the wavelengths", low=1.0)
    rope_fraction: float = opt(1.0, "fraction of each head that is rotated", "fraction", low=0.0, high=1.0)
    norm_eps: float = opt(1e-6, "epsilon that norms add to the mean square (variance)", low=0.0)
    qk_norm: bool = opt(
        False, "apply RMSNorm with a learned gain to each query and key head, before rotation"
    )
    first_norms: int = opt(
        3,
        "norms in the first block, whose q, k and v have the same input: 3 = one for each; 1 = one for all",
        low=1,
        high=3,
    )
    tie_embeddings: bool = opt(False, "the head and the embedding share one matrix (tied embeddings)")
    init_std: float = opt(0.006, "standard deviation of the initial matrices", low=0.0, effect="start")
    mix: str = opt(
        "dynamic",
        "mixing weights of earlier states: dynamic = computed per token; static = learned constants; "
        "none = no mixing",
        choices=("dynamic", "static", "none"),
    )
    streams: str = opt(
        "qkvr",
        "inputs with a separate mixture: letters of qkvr in this order; all others read the newest "
        "state; x = one mixture for all four",
    )
    prenorm: bool = opt(
        False,
        "normalise every state before it is mixed, and add a learned gain to the norm of the weight "
        "generator",
    )
    postnorm: bool = opt(
        False, "add the newest state to every mixture; the mixture of the r stream is first normalised"
    )
    last_norm: bool = opt(True, "with postnorm: also normalise the mixture that the head reads")
    activation: str = opt(
        "gelu_tanh",
        "activation of the MLP that generates the mixing weights (the weight generator)",
        choices=("gelu_tanh", "gelu_erf", "relu", "silu", "squared_relu"),
    )
    hidden_round: bool = opt(True, "round hidden widths of the weight generators up to a multiple of 64")
    last_expand: int = opt(4, "factor that widens the weight generator of the last block", "", low=1)
    hidden: str = opt(
        "",
        "hidden width of each block's weight generator, such as 64,64,128; empty = computed by the "
        "family's rule",
        "channels",
    )
    dilation: int = opt(1, "mix every N-th earlier state, counted from the newest", "states", low=1)
    period: int = opt(1, "mix only after every N-th block", "blocks", low=1)
    window: int = opt(
        0,
        "number of newest states to mix, in addition to the embedding; 0 = all earlier states",
        "states",
        low=0,
    )


@dataclass(frozen=True)
class MUDDFormerConfig(ExpertFields, _Fields):
    """MUDDFormer: a Transformer whose blocks read weighted sums of all earlier states (Xiao et al. 2025)."""

    later_fields: ClassVar[frozenset[str]] = frozenset(field.name for field in fields(ExpertFields))

    @property
    def single(self) -> bool:
        """True if query, key, value and residual have one common input, and therefore one norm before attention."""
        return self.mix == "none" or self.streams == "x"

    @property
    def grows(self) -> bool:
        """True if inner widths grow with depth. With experts, every expert has the width d_ff."""
        return self.ffn_realloc and not self.n_expert

    def ffn_width(self, layer: int) -> int:
        """Return the inner width of a block's feed-forward part or expert, rounded half to even (in this operation
        order).
        """
        if not self.grows:
            return self.d_ff
        return round(self.d_ff * (layer / (self.n_layer - 1) + 0.5) / 128) * 128

    def sources(self, layer: int) -> list[int]:
        """Return the states (0: embedding, j: output of block j - 1) that are mixed after a block; empty without
        mixing.
        """
        newest = layer + 1
        if self.mix == "none" or newest % self.period:
            return []
        chosen = [j for j in range(newest + 1) if (newest - j) % self.dilation == 0]
        if self.window:
            chosen = [j for j in chosen if j == 0 or j > newest - self.window]
        return chosen

    def mixtures(self, layer: int) -> int:
        """Return the number of streams after a block; the last block has one, for the head."""
        return 1 if layer == self.n_layer - 1 else len(self.streams)

    def generator_width(self, layer: int) -> int:
        """Return the hidden width of the weight generator after a block."""
        if self.hidden:
            return int(self.hidden.split(",")[layer])
        expand = self.last_expand if layer == self.n_layer - 1 else 1
        width = self.mixtures(layer) * len(self.sources(layer)) * expand
        return (width // 64 + 1) * 64 if self.hidden_round else width

    def matrix_weights(self) -> int:
        """Return the weights of the blocks and generators that enter a matmul for every token."""
        return (
            self.n_layer * attention_weights(self)
            + sum(self._ffn_weights(layer) for layer in range(self.n_layer))
            + sum(self._generator_weights(layer) for layer in range(self.n_layer))
        )

    def _ffn_weights(self, layer: int) -> int:
        if self.n_expert:
            return self.active_weights(self.d_model, self.d_ff)
        return (3 if self.block == "llama" else 2) * self.d_model * self.ffn_width(layer)

    def _generator_weights(self, layer: int) -> int:
        count = self.mixtures(layer) * len(self.sources(layer))
        return self.generator_width(layer) * (self.d_model + count) if self.mix == "dynamic" and count else 0

    def settled(self) -> MUDDFormerConfig:
        """Return the config with derived values for fields of 0 (automatic), and defaults for fields without effect."""
        generator = ["activation", "hidden_round", "last_expand", "hidden"]
        mixing = [
            "streams",
            "first_norms",
            "prenorm",
            "postnorm",
            "last_norm",
            "dilation",
            "period",
            "window",
        ]
        inert = {"dynamic": [], "static": generator, "none": generator + mixing}[self.mix]
        inert += ["first_norms"] if self.single else []
        inert += [] if self.postnorm else ["last_norm"]
        inert += self.inert_expert_fields() + (["ffn_realloc"] if self.n_expert else [])
        ruled = with_defaults(self, ["hidden"])
        layers = range(self.n_layer)
        if self.hidden and [ruled.generator_width(n) for n in layers] == [
            self.generator_width(n) for n in layers
        ]:
            inert.append("hidden")  # the widths by that rule, written as a list
        elif self.hidden:
            inert += ["hidden_round", "last_expand"]
        return with_defaults(with_heads(self), inert)

    def faults(self) -> list[str]:
        """Return the broken rules between fields, one message each."""
        faults = head_faults(self)
        if not faults and head_width(self) * self.rope_fraction % 2:
            faults.append(
                "model.rope_fraction: expected an even number of rotated channels, got "
                f"{head_width(self) * self.rope_fraction:g} of {head_width(self)}"
            )
        in_order = "".join(c for c in STREAMS if c in self.streams)
        if self.streams != "x" and (not self.streams or self.streams != in_order):
            faults.append(
                f"model.streams: expected letters of '{STREAMS}' in this order, or x, got '{self.streams}'"
            )
        if self.grows and self.n_layer < 2:
            faults.append("model.ffn_realloc: expected at least 2 blocks (model.n_layer)")
        elif self.grows and self.ffn_width(0) == 0:
            faults.append(
                f"model.d_ff: {self.d_ff} leaves the first block no channel; set 256 or more, or "
                "model.ffn_realloc=false"
            )
        if self.block == "pythia" and self.n_expert:
            faults.append(f"model.n_expert: expected 0 with model.block=pythia, got {self.n_expert}")
        if self.block == "pythia" and self.postnorm:
            faults.append("model.postnorm: expected false with model.block=pythia")
        widths = self.hidden.split(",") if self.hidden else []
        if widths and (len(widths) != self.n_layer or not all(w.isdecimal() and int(w) for w in widths)):
            faults.append(
                f"model.hidden: expected {self.n_layer} widths separated by commas, got '{self.hidden}'"
            )
        if self.first_norms == 2:
            faults.append("model.first_norms: expected 1 or 3, got 2")
        return faults + self.expert_faults()
