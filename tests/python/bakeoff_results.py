"""Results of bake-offs with generated curves; nothing is trained."""

from __future__ import annotations

from collections.abc import Mapping

from mudd_core.tools.bakeoff.result import MeanPoint, ModelResult, Result


def result_of(models: Mapping[str, tuple[float | None, float | None]], title: str) -> Result:
    """Return the result of models with these names. models: the difference to the first model, and the interval."""
    intervals = [interval for _, interval in models.values()]
    return {
        "title": title,
        "measure": "val_bits_per_byte",
        "seeds": 1 if None in intervals else 3,
        "vocabulary": 257,
        "environment": "a CPU, level avx2, 1 threads, fp32",
        "note": "A note.",
        "models": [_model(name, *values) for name, values in models.items()],
    }


def _model(name: str, difference: float | None, interval: float | None) -> ModelResult:
    final = 2.0 + (difference or 0.0)
    return {
        "name": name,
        "family": "gpt2",
        "parameters": 91_920,
        "training_flops": 9e9,
        "steps": 100,
        "tokens": 102_400,
        "seconds": [5.0],
        "final": [final],
        "mean": final,
        "interval95": interval,
        "difference": difference,
        "difference_interval95": None if difference is None else interval,
        "verdict": "the reference" if difference is None else "no verdict",
        "curve": [_point(step, final + 2.0 - step / 50, interval) for step in range(20, 101, 20)],
    }


def _point(step: int, mean: float, interval: float | None) -> MeanPoint:
    return {
        "step": step,
        "tokens": 1023.57 * step,
        "flops": 9e7 * step,
        "seconds": step / 20,
        "mean": mean,
        "interval95": interval,
    }
