"""The inputs and outputs of a model function, the same for every family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mudd_core import ops
from mudd_core.config import LossConfig
from mudd_core.config.families import ModelConfig
from mudd_core.graph.recording import Like


@dataclass(frozen=True)
class Batch:
    """Token ids [B, T] and optional arrays (contracts 14). Ops use a cheaper path for absent arrays.

    inputs: int32 ids. targets: int32 ids, negative = ignored. positions: int32, default 0..T-1. segments: int32;
    attention stays inside a segment; 0 = padding. key_mask: int32 0/1; 1 = visible key. known_positions: the number of
    positions of the rotary tables, if a ring of keys continues beyond max_seq_len.
    """

    inputs: Like
    targets: Like | None = None
    positions: Like | None = None
    segments: Like | None = None
    key_mask: Like | None = None
    known_positions: int = 0

    @classmethod
    def of(cls, arrays: Mapping[str, Like]) -> Batch:
        """Return a batch from its arrays by name."""
        return cls(
            arrays["inputs"],
            arrays.get("targets"),
            arrays.get("positions"),
            arrays.get("segments"),
            arrays.get("key_mask"),
        )

    def max_positions(self, config: ModelConfig) -> int:
        """Return the number of positions that the rotary tables need in a model of this config."""
        return max(self.known_positions, config.max_seq_len)


@dataclass(frozen=True)
class Cache:
    """Keys and values of the tokens so far: for each layer k and v [B, G, Tmax, hd], written in place.

    ids: the ids of these tokens as float32 [B, 1, Tmax, 1], for a model with n-grams. ring: a token after Tmax others
    replaces the oldest one.
    """

    k: Sequence[Like]
    v: Sequence[Like]
    ids: Like | None = None
    ring: bool = False


@dataclass(frozen=True)
class Aux:
    """Auxiliary losses, computed from statistics of the layers (the routers of a mixture of experts).

    metrics: one value [B, W] per layer, sums over each sample, which the metrics of a step show too. The other fields
    are options of ops.moe_balance.
    """

    metrics: Sequence[Like]
    form: str
    scope: str
    balance: float
    z: float
    top_k: int

    def loss(self, targets: Like) -> Like:
        """Return summed nats per shard, float64 [S], which training adds to the summed loss of the tokens."""
        loss: Like = ops.moe_balance(
            targets,
            *self.metrics,
            form=self.form,
            scope=self.scope,
            balance=self.balance,
            z=self.z,
            top_k=self.top_k,
        )[0]
        return loss


@dataclass(frozen=True)
class Taught:
    """A teacher's tokens [B, T, K] and their log-probabilities, and the weight of the divergence from them."""

    ids: Like
    log_probs: Like
    weight: float


@dataclass(frozen=True)
class Hidden:
    """The final normalised states h [B, T, D] and the head [V, D], from which losses or logits are computed.

    aux: further losses, or None. bias: the bias [V] of the logits, or None.
    """

    h: Like
    head: Like
    aux: Aux | None = None
    bias: Like | None = None

    def loss(
        self,
        targets: Like,
        taught: Taught | None = None,
        rule: LossConfig | None = None,
        *,
        by_sample: bool = False,
    ) -> tuple[Like, ...]:
        """Return (nats, counted, guessed) of ops.cross_entropy: the first two are sums per shard, float64 [S].

        With a teacher, return the four results of ops.teacher_loss. With a rule that has label smoothing or a z-loss,
        return the four results of ops.regularized_loss. by_sample: `guessed` has the loss of each sample too, without a
        teacher.
        """
        found: tuple[Like, ...]
        if taught is None and rule is not None and rule.is_regularized:
            found = ops.regularized_loss(
                self.h,
                self.head,
                targets,
                self.bias,
                label_smoothing=rule.label_smoothing,
                z=rule.z,
                by_sample=by_sample,
            )
        elif taught is None:
            found = ops.cross_entropy(self.h, self.head, targets, self.bias, by_sample=by_sample)
        else:
            found = ops.teacher_loss(
                self.h, self.head, targets, taught.ids, taught.log_probs, self.bias, weight=taught.weight
            )
        return found

    def pair_loss(self, targets: Like, rule: LossConfig, given: Mapping[str, Like]) -> tuple[Like, ...]:
        """Return (nats, pairs, ranked, log_probs) of ops.preference_loss for pairs of answers.

        given: its inputs reference, nll and segments, as far as the loss has them.
        """
        found: tuple[Like, ...] = ops.preference_loss(
            self.h,
            self.head,
            targets,
            self.bias,
            given.get("reference"),
            given.get("nll"),
            given.get("segments") if rule.packed_pairs > 1 else None,
            loss=rule.kind,
            beta=rule.beta,
            label_smoothing=rule.label_smoothing,
            pairs=rule.packed_pairs,
        )
        return found

    def logits(self) -> Like:
        """Return all logits [B, T, V]."""
        made: Like = ops.linear(self.h, self.head, self.bias, transposed=True, full_precision=True)
        return made
