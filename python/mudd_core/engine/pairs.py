"""The loss of pairs of answers in the graphs of a model: its inputs, its checks and its metrics (contracts 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mudd_core.base.types import Array
from mudd_core.config import LossConfig, ModelConfig
from mudd_core.data.rows import NLL, NLL_COLUMNS, REFERENCE, REFERENCE_COLUMNS
from mudd_core.engine.batch_check import checked_batch
from mudd_core.engine.evaluation_sums import EvaluationSums


def needs_reference(rule: LossConfig | None) -> bool:
    """Return True if a loss compares with a reference, whose log-probabilities are an input."""
    return rule is not None and rule.kind == "dpo"


def pair_parts(rule: LossConfig) -> dict[str, int]:
    """Return the float32 arrays [B, columns] that a loss needs: the columns by name."""
    if needs_reference(rule):
        return {REFERENCE: rule.packed_pairs * REFERENCE_COLUMNS}
    return {NLL: rule.packed_pairs * NLL_COLUMNS} if rule.nll == "all" else {}


def checked_pairs(
    batch: Mapping[str, npt.ArrayLike], config: ModelConfig, rule: LossConfig
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Return the arrays of a batch of pairs, and the names of its optional arrays; raise ValueError or TypeError.

    Samples 2i and 2i + 1 are the chosen and the rejected answer of a pair. The batch has the arrays of pair_parts too.
    With several pairs in two samples, the segments name their answers.
    """
    rest = {name: array for name, array in batch.items() if name not in (REFERENCE, NLL)}
    found, optional = checked_batch(rest, config)
    arrays: dict[str, Array] = {**found}
    if rule.packed_pairs > 1 and "segments" not in arrays:
        raise ValueError(
            f"[model] segments: expected the answers of loss.packed_pairs={rule.packed_pairs}, got none"
        )
    rows = len(arrays["inputs"])
    if rows % 2:
        raise ValueError(
            f"[model] inputs: expected pairs, chosen and rejected by turns, got {rows} sequences"
        )
    for name, columns in pair_parts(rule).items():
        given = np.asarray(batch.get(name))
        if given.dtype != np.float32 or given.shape != (rows, columns):
            raise ValueError(
                f"[model] {name}: expected float32 {(rows, columns)} for loss.kind={rule.kind}, got {given.dtype} "
                f"{given.shape}"
            )
        arrays[name] = np.ascontiguousarray(given)
    return arrays, optional


class PairSums(Protocol):
    """A model that evaluates pairs of answers."""

    def evaluate_all(self, batch: Mapping[str, Array]) -> EvaluationSums:
        """Return the summed loss, the pairs, the ranked pairs and the margins of a batch."""


@dataclass(frozen=True)
class PairEvaluator:
    """The evaluation of pairs of answers for a validation."""

    model: PairSums

    def evaluate(self, batch: Mapping[str, Array]) -> EvaluationSums:
        """Return the summed loss, the pairs, the ranked pairs and the margins of a batch."""
        return self.model.evaluate_all(batch)


def pair_metrics(sums: Iterable[float], pairs: float) -> dict[str, float]:
    """Return the metrics of a step. sums: over its pairs, of the ranked ones and of the margins. pairs: their number.

    accuracy: the fraction with a positive margin. margin: the mean of beta times the difference of log-ratios (dpo) or
    of mean log-probabilities (orpo), in nats.
    """
    ranked, margins = sums
    return {"accuracy": float(ranked / max(1.0, pairs)), "margin": float(margins / max(1.0, pairs))}
