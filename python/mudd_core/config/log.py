"""Fields of the logs."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.config.fields import opt
from mudd_core.config.programs import NAMES


@dataclass(frozen=True)
class LogConfig:
    """Lines on stdout, TensorBoard, Weights & Biases and MLPerf logs; metrics.jsonl is always written."""

    style: str = opt(
        "auto",
        "format of log lines and TensorBoard tags, named after a program; ours = mudd_core; auto = the program whose "
        "command or config file is used, else ours",
        choices=("auto", "ours", *NAMES),
        free=True,
    )
    compat: bool = opt(
        False, "reproduce the unusual metrics of the original programs (docs/coming-from)", free=True
    )
    weights: bool = opt(
        False,
        "also log norms of weights and activations; for a muP model also the mean size of each "
        "weight's update",
        free=True,
    )
    activations: bool = opt(False, "log the mean size of every activation of a muP model", free=True)
    batches: bool = opt(
        False,
        "add a hash of each step's token ids to its log entry, so that two runs can be compared",
        free=True,
    )
    flush_every: int = opt(
        10,
        "steps between writes to TensorBoard files; metrics.jsonl is written without delay",
        "steps",
        low=1,
        free=True,
    )
    metrics_file: str = opt(
        "",
        "path of a second metrics file; with log.style=maxtext the path of MaxText's file or folder "
        "of metrics; empty = none",
        free=True,
    )
    mllog: bool = opt(
        False,
        "write an MLPerf log. The log and eval.target_loss then use only validations at multiples of "
        "train.log_every",
        free=True,
    )
    mllog_config: str = opt(
        "", "name of the config file in the MLPerf log; empty = the name of the run", free=True
    )
    mllog_warmup: float = opt(
        -1.0,
        "warm-up factor in the MLPerf log; -1 = warm-up steps divided by the schedule's steps",
        low=-1.0,
        high=1.0,
        free=True,
    )
    wandb: str = opt(
        "off",
        "Weights & Biases logging: offline = write files to wandb_dir; online = also upload them",
        choices=("off", "offline", "online"),
        free=True,
    )
    wandb_project: str = opt("mudd_core", "Weights & Biases project of the run", free=True)
    wandb_entity: str = opt(
        "", "Weights & Biases user or team of the run; empty = your default one", free=True
    )
    wandb_dir: str = opt(
        "", "folder for the files of Weights & Biases; empty = the work directory", free=True
    )
    wandb_run: str = opt(
        "", "Weights & Biases id of the run; empty = a new one, which a resume keeps", free=True
    )
