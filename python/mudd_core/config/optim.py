"""Fields of the optimizer and of its learning rate."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.config.fields import opt
from mudd_core.config.groups import OPTIMIZERS


@dataclass(frozen=True)
class OptimConfig:
    """Optimizer and learning rate."""

    name: str = opt(
        "adamw",
        "optimizer; adam_pax is the MUDDFormer code's name for adamw; sgd has Nesterov momentum; muon takes "
        "the matrices of blocks and leaves all else to adamw",
        choices=OPTIMIZERS,
    )
    lr: float = opt(1e-3, "peak learning rate", "per update", low=0.0, flags=("learning_rate",))
    beta1: float = opt(
        0.9,
        "decay of the first moment; lion: weight of the moment in the direction",
        low=0.0,
        high=1.0,
        flags=("adamw_beta1",),
    )
    beta2: float = opt(
        0.95, "decay of the second moment; lion: of its moment", low=0.0, high=1.0, flags=("adamw_beta2",)
    )
    momentum: float = opt(0.9, "sgd: fraction of its moment that stays", low=0.0, high=1.0)
    nesterov: bool = opt(
        True, "sgd: step along gradient + momentum x moment; false: along the moment", later=True
    )
    eps: float = opt(1e-8, "added to the root of the second moment", low=0.0, flags=("adamw_eps",))
    eps_root: float = opt(
        0.0, "adamw: added to the bias-corrected second moment below its root", low=0.0, later=True
    )
    moment_dtype: str = opt(
        "fp32",
        "how the first moment is stored; bf16 is rounded after the update was formed",
        choices=("fp32", "bf16"),
    )
    rule: str = opt(
        "sp",
        "rates by role: sp one for all; mup matrices and head over d_model / d_base; abs_mup over their fan-in",
        choices=("sp", "mup", "abs_mup"),
    )
    eps_scaling: bool = opt(False, "the rule scales eps as it scales the rate")
    weight_decay: float = opt(
        0.1, "fraction of a weight removed, times a rate", low=0.0, flags=("weight_decay_rate",)
    )
    decay_mode: str = opt(
        "coupled",
        "decay times the weight's own learning rate, or independent: times the schedule's factor only",
        choices=("coupled", "independent"),
    )
    decay: str = opt("matrices", "which parameters decay", choices=("matrices", "no_norm_no_bias", "all"))
    clip: float = opt(1.0, "largest global gradient norm; 0 = no clipping", low=0.0, flags=("max_grad_norm",))
    schedule: str = opt(
        "cosine", "learning rate after warm-up", choices=("constant", "cosine", "linear", "wsd")
    )
    warmup_steps: int = opt(0, "updates of linear warm-up", "steps", low=0)
    warmup: str = opt(
        "next",
        "warm-up of update t: next peak (t + 1) / W; zero peak t / W; floor from the final rate, t / W up; "
        "between peak (t + 1) / (W + 1)",
        choices=("next", "zero", "floor", "between"),
    )
    final_lr_ratio: float = opt(0.1, "last learning rate over the peak", "fraction", low=0.0, high=1.0)
    schedule_steps: int = opt(
        0,
        "updates of warm-up and decay together, then optim.after_schedule; 0 = train.steps",
        "steps",
        low=0,
        later=True,
    )
    after_schedule: str = opt(
        "final",
        "rate of updates after optim.schedule_steps: final, the last rate holds; zero",
        choices=("final", "zero"),
        later=True,
    )
    decay_steps: int = opt(0, "wsd: updates of the final decay; 0 = a tenth of the schedule", "steps", low=0)
    muon_momentum: float = opt(
        0.95, "muon: fraction of its moment that stays (Nesterov)", low=0.0, high=1.0, later=True
    )
    muon_steps: int = opt(
        5, "muon: Newton-Schulz steps that make its update orthogonal", "steps", low=1, high=99, later=True
    )
    muon_adjust_lr: str = opt(
        "match_rms_adamw",
        "muon: factor of a matrix's rate; match_rms_adamw 0.2 sqrt(longer side), so that the rate "
        "of adamw fits; original sqrt(max(1, fan_out / fan_in))",
        choices=("match_rms_adamw", "original"),
        later=True,
    )
    groups: str = opt(
        "",
        "parameters with an optimizer of their own, such as 'lion: head, lr_factor=0.1; sgd: role=gain, "
        "blocks.0.*': patterns as in train.trainable or roles, then settings (lr_factor times lr; weight_decay, beta1, "
        "beta2, momentum); all others follow optim.name; empty = none",
        later=True,
    )
