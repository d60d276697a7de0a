"""The base of the config of a family of the user's own: sizes, heads and what the blocks of this package read."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.config.families.heads import head_faults, with_heads
from mudd_core.config.families.sizes import HeadSizes
from mudd_core.config.fields import opt


@dataclass(frozen=True)
class FamilyConfig(HeadSizes):
    """Sizes of a model; derive from it, add fields with defaults (int, float, bool, str), override what differs."""

    family: str = opt("", "model family")
    d_ff: int = opt(704, "inner width of the feed-forward block", "channels", low=1)
    rope_base: float = opt(10000.0, "base of the rotary wavelengths", low=1.0)
    norm_eps: float = opt(1e-6, "added to the mean square in norms", low=0.0)
    tie_embeddings: bool = opt(False, "the head shares the embedding's matrix")
    init_std: float = opt(0.02, "standard deviation of the initial matrices", low=0.0, effect="start")

    def matrix_weights(self) -> int:
        """0: the engine counts the matrices that the model declares."""
        return 0

    def settled(self) -> FamilyConfig:
        """The same model with the zeros of d_head and n_kv_head resolved."""
        return with_heads(self)

    def faults(self) -> list[str]:
        """Broken rules between fields, one message each."""
        return head_faults(self)
