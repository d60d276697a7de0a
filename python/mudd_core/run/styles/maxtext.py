"""log.style=maxtext: the lines and tags of MUDDFormer's and TokenFormer's MaxText programs."""

from __future__ import annotations

import math

import numpy as np

from mudd_core.config.fields import walk
from mudd_core.engine.accuracy import SAMPLE_ACCURACY
from mudd_core.run.records import StepRecord, Validation
from mudd_core.run.styles.style import Style

EVERY = 5  # updates from one write of the tags to the next


class MaxTextStyle(Style):
    """One line an update, tags every fifth one. perf/step_time_seconds: seconds, or with log.compat steps a second."""

    ours = False
    weights_every = EVERY

    def _tflops(self) -> float:
        train = self.facts.config.train
        return self.facts.flops_per_token * train.batch_size * train.seq_len / 1e12

    def _step_seconds(self, record: StepRecord) -> float:
        train = self.facts.config.train
        return train.batch_size * train.seq_len / max(record.tokens_per_second, 1e-9)

    def step(self, record: StepRecord) -> list[str]:
        """The line of an update."""
        seconds = self._step_seconds(record)
        return [
            f"completed step: {record.step}, steps/s: {1 / seconds:.3f}, TFLOP/s: {self._tflops() / seconds:.3f}, "
            f"loss: {record.loss:.4f}, aux_loss: {_aux_loss(record):.4f}, accuracy: {_accuracy(record):.4f}"
        ]

    def validated(self, result: Validation) -> list[str]:
        """The line of a validation."""
        return [
            f"eval step: {result.step}, eval_loss: {result.val_loss:.4f}, total_weights: {result.targets}"
        ]

    def scalars(self, record: StepRecord) -> dict[str, float]:
        """The tags of every fifth update; norms of parameters with log.weights."""
        if record.step % EVERY:
            return {}
        config = self.facts.config
        seconds, clip = self._step_seconds(record), config.optim.clip
        norms = {name: _norm(value) for name, value in self.facts.weights().items()}
        tags = {
            "learning/loss": record.loss,
            "learning/aux_loss": _aux_loss(record),
            "learning/accuracy": _accuracy(record),
            "learning/grad_norm": min(record.grad_norm, clip) if clip > 0 else record.grad_norm,
            "learning/raw_grad_norm": record.grad_norm,
            "learning/param_norm": math.sqrt(math.fsum(norm * norm for norm in norms.values())),
            "learning/train_batch_weights": record.targets,
            "learning/current_learning_rate": record.lr,
            "perf/step_time_seconds": 1 / seconds if config.log.compat else seconds,
            "perf/per_device_tflops": self._tflops(),
            "perf/per_device_tflops_per_sec": self._tflops() / seconds,
        }
        if config.log.weights:
            tags |= {f"total_params/{name.replace('.', '/')}": norm for name, norm in norms.items()}
            tags |= self.facts.inside(record.step)
        return tags

    def eval_scalars(self, result: Validation) -> dict[str, float]:
        """The tags of a validation."""
        return {
            "learning/eval_loss": result.val_loss,
            "learning/eval_accuracy": math.nan if result.val_accuracy is None else result.val_accuracy,
            "learning/batch_eval_loss": result.batch_loss,
            "learning/batch_eval_accuracy": result.batch_accuracy,
        }

    def texts(self) -> dict[str, str]:
        """The number of parameters and every field of the config."""
        count = sum(value.size for value in self.facts.weights().values())
        fields = {info.path: str(info.value) for info in walk(self.facts.config)}
        return {"num_model_parameters": str(count), "libtpu_init_args": "", **fields}


def _aux_loss(record: StepRecord) -> float:
    return float(record.metrics.get("aux_loss", 0.0))


def _accuracy(record: StepRecord) -> float:
    """The mean over sequences of the share of their targets that are guessed."""
    return float(record.metrics.get(SAMPLE_ACCURACY, math.nan))


def _norm(value: np.ndarray) -> float:
    flat = np.asarray(value, np.float32).reshape(-1)
    return math.sqrt(float(np.dot(flat, flat)))
