"""log.style=moe: the scalars of the mixture-of-experts benchmark, in addition to mudd_core's lines."""

from __future__ import annotations

import math

from mudd_core.config import mixture_of
from mudd_core.run.records.events import StepRecord, Validation
from mudd_core.run.report.style import Style


class MoeStyle(Style):
    """Tags of every logged update and of each validation. Numbers of tokens are totals of the run.

    A rank is a device. perf/per_device_tflops: the benchmark's count, 6 x tokens x all weights x top_k / experts.
    perf/per_device_active_tflops: mudd_core's count, of the weights and attention scores that are active for a token.
    """

    def started(self) -> list[str]:
        """Return a line with the target loss and the steps at which it is checked."""
        config = self.facts.config
        train, target = config.train, config.eval.target_loss
        every = train.eval_every or train.steps
        tokens = every * train.batch_size * train.seq_len
        wanted = f"target validation loss {target:g}" if target > 0 else "no target validation loss"
        text = f"{wanted}; a validation every {every:,} steps ({tokens:,} tokens)"
        counted = math.lcm(every, train.log_every) if config.log.mllog else every
        if counted != every:
            text += f"; the MLPerf log and the target use one every {counted:,} steps (log_frequency={train.log_every})"
        return [text]

    def scalars(self, record: StepRecord) -> dict[str, float]:
        """Return the tags of a logged update."""
        train = self.facts.config.train
        if record.step % train.log_every and record.step != train.steps:
            return {}
        tokens = train.batch_size * train.seq_len
        seconds = tokens / max(record.tokens_per_second, 1e-9)
        ranks = self.facts.ranks
        theirs, ours = (n * tokens / ranks / 1e12 for n in (self._their_flops(), self.facts.flops_per_token))
        return {
            "train/loss": record.loss,
            "train/grad_norm": record.grad_norm,
            "train/num_tokens": record.tokens,
            "train/lr": record.lr,
            "perf/step_time_seconds": seconds,
            "perf/per_device_tflops": theirs,
            "perf/per_device_tflops_per_sec": theirs / seconds,
            "perf/per_device_active_tflops": ours,
            "perf/per_device_active_tflops_per_sec": ours / seconds,
            "perf/per_device_tokens_per_sec": record.tokens_per_second / ranks,
            "step": record.step,
        }

    def eval_scalars(self, result: Validation) -> dict[str, float]:
        """Return the tags of a validation."""
        train = self.facts.config.train
        return {
            "eval/loss": result.val_loss,
            "eval/num_tokens": result.step * train.batch_size * train.seq_len,
            "eval/total_weights": result.targets,
        }

    def _their_flops(self) -> float:
        """Return the FLOPs of a token by the benchmark's count: all weights, scaled by the fraction of active
        experts.
        """
        mixture = mixture_of(self.facts.config.model)
        active = mixture.top_k / mixture.n_expert if mixture else 1.0
        return 6.0 * self.facts.n_parameters * active
