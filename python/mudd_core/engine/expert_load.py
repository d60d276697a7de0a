"""The load of the experts in a mixture: metrics of every step, and an alarm for underused and overloaded experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mudd_core.base.types import Array, Json, JsonObject
from mudd_core.config import ModelConfig, mixture_of

WINDOW = 100  # steps over which an alarm averages
LOW, HIGH = 0.1, 3.0  # limits of an expert's load, relative to an equal load
_STATE = "expert_load/routed"


@dataclass(frozen=True)
class StepMetrics:
    """Metrics of one step, summed over its tokens: [L, E] counts of slots, [L] sums (see ops.moe_route)."""

    routed: Array
    probability: Array
    kept: Array
    dropped: Array
    squared_lse: Array
    tokens: Array
    entropy: Array

    @classmethod
    def of(cls, sums: Array, layers: int, experts: int) -> StepMetrics:
        """Return the metrics from the sums of all layers, which are concatenated in one array."""
        f = sums.reshape(layers, 4 * experts + 3)
        parts = (f[:, i * experts : (i + 1) * experts] for i in range(4))
        return cls(*parts, *(f[:, 4 * experts + i] for i in range(3)))

    def balance(self) -> float:
        """Return the pooled balance loss of the whole step without its coefficient: top_k if all loads are equal."""
        tokens = max(1.0, float(self.tokens.sum()))
        share, mean = self.routed.sum(0) / tokens, self.probability.sum(0) / tokens
        return float(self.routed.shape[1] * (share * mean).sum())

    def row(self) -> JsonObject:
        """Return the entry for metrics.jsonl, by layer (and expert)."""
        slots = np.maximum(1.0, self.routed.sum(1, keepdims=True))
        worked = np.maximum(1.0, (self.kept + self.dropped).sum(1, keepdims=True))
        tokens = np.maximum(1.0, self.tokens)
        return {
            "balance": self.balance(),
            "expert_load": _lists(self.routed * self.routed.shape[1] / slots),
            "expert_dropped": _lists(self.dropped / worked),
            "router_entropy": _lists(self.entropy / tokens),
            "router_z": _lists(self.squared_lse / tokens),
        }


def _lists(values: Array) -> Json:
    lists: Json = np.round(values, 6).tolist()
    return lists


class ExpertLoad:
    """Collects the metrics of each step. The last steps are saved, so a resumed run raises the same alarms."""

    def __init__(self, layers: int, experts: int, slots: int) -> None:
        """Start without steps. slots: the number of tokens per step, times top_k."""
        self._layers, self._experts, self._slots = layers, experts, slots
        self._window = np.full((WINDOW, layers, experts), -1, np.int64)  # -1: no step yet
        self._last: StepMetrics | None = None

    def add_step(self, step: int, sums: Array) -> None:
        """Add the core's sums of update `step` (from 0). Raise RuntimeError if slots are missing."""
        metrics = StepMetrics.of(np.array(sums), self._layers, self._experts)
        found = metrics.kept.sum(1) + metrics.dropped.sum(1)
        for layer in np.nonzero(found != self._slots)[0]:
            raise RuntimeError(
                f"[experts] layer {layer}: {metrics.kept[layer].sum():.0f} routed and "
                f"{metrics.dropped[layer].sum():.0f} dropped slots, expected {self._slots} together"
            )
        self._window[step % WINDOW] = metrics.routed.astype(np.int64)
        self._last = metrics

    def alarms(self) -> list[str]:
        """Return the experts whose load over the last WINDOW steps is outside [LOW, HIGH] times the mean.

        The list is empty during the first WINDOW steps.
        """
        if (self._window < 0).any():
            return []
        counts = self._window.sum(0)
        share = counts * self._experts / np.maximum(1, counts.sum(1, keepdims=True))
        where = np.argwhere((share < LOW) | (share > HIGH))
        return [f"layer {layer} expert {e} at {share[layer, e]:.2f} of even load" for layer, e in where]

    def row(self) -> JsonObject:
        """Return the metrics of the last step for the log."""
        if self._last is None:
            return {}
        row = self._last.row()
        if alarms := self.alarms():
            row["expert_alarms"] = [*alarms]
        return row

    def state(self) -> dict[str, Array]:
        """Return the arrays for a checkpoint."""
        return {_STATE: self._window}

    def load_state(self, tensors: Mapping[str, Array]) -> None:
        """Load the result of state."""
        self._window[...] = tensors[_STATE]


def for_model(config: ModelConfig, tokens: int) -> ExpertLoad | None:
    """Return a collector for a model with experts, else None. tokens: the number of tokens per step."""
    mixture = mixture_of(config)
    if mixture is None:
        return None
    return ExpertLoad(mixture.n_layer, mixture.n_expert, tokens * mixture.top_k)
