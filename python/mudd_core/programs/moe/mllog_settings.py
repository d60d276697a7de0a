"""Header of a run's MLPerf log: the submission, and every hyper-parameter once."""

from __future__ import annotations

from mudd_core.config import Config, mixture_of
from mudd_core.config.fields import Scalar

BENCHMARK = "mixture-of-expert"


def settings_of(config: Config, documents: tuple[int, int], ranks: int = 1) -> dict[str, Scalar]:
    """Return the values by key, in the order of the log. documents: the numbers for training and validation."""
    train, optim = config.train, config.optim
    runs = _runs(config)
    evaluated = min(documents[1], config.eval.documents or documents[1])
    schedule = optim.schedule_steps or train.steps
    dtype = "bfloat16" if train.precision == "bf16" else "fp32"
    mesh, warmup = config.mesh, config.log.mllog_warmup
    found: dict[str, Scalar] = {
        "submission_benchmark": BENCHMARK,
        "submission_division": "closed",
        "submission_org": "mudd_core",
        "submission_platform": f"{ranks} x CPU",
        "submission_status": "onprem",
        "config_filename": config.log.mllog_config or config.name,
        "seed": train.seed,
        "global_batch_size": train.batch_size,
        "micro_batch_size": max(1, train.batch_size // (runs * ranks)),
        "gradient_accumulation_steps": runs,
        "max_sequence_length": train.seq_len,
        "max_steps": train.steps,
        "train_samples": documents[0],
        "eval_samples": evaluated,
        "opt_name": optim.name,
        "opt_base_learning_rate": optim.lr,
        "opt_learning_rate_warmup_factor": warmup if warmup >= 0 else optim.warmup_steps / schedule,
        "opt_learning_rate_warmup_steps": optim.warmup_steps,
        "opt_learning_rate_training_steps": schedule,
        "opt_learning_rate_decay_steps": max(0, schedule - optim.warmup_steps),
        "opt_learning_rate_decay_schedule": f"{optim.schedule} with linear warmup",
        "opt_adamw_beta_1": optim.beta1,
        "opt_adamw_beta_2": optim.beta2,
        "opt_adamw_epsilon": optim.eps,
        "opt_adamw_weight_decay": optim.weight_decay,
        "opt_gradient_clip_norm": optim.clip,
        "lowest_numerical_precision_in_linear": dtype,
        "lowest_numerical_precision_in_attn": dtype,
        "lowest_numerical_precision_in_comm": "fp32",
        "tensor_parallelism": max(1, mesh.tensor),
        "pipeline_parallelism": max(1, mesh.pipeline),
        "context_parallelism": max(1, mesh.context),
        "expert_parallelism": max(1, mesh.expert),
    }
    if mixture := mixture_of(config.model):
        found["moe_aux_loss_coeff"] = mixture.aux_coef
    return found


def _runs(config: Config) -> int:
    """Return the number of means that a step averages. It is above one only with loss.normalize=micro_mean."""
    train = config.train
    return train.batch_size // train.sequences_per_run() if config.loss.normalize == "micro_mean" else 1
