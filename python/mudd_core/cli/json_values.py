"""The values of a run and of a plan for `report --json` and `--plan --json`."""

from __future__ import annotations

from mudd_core.base.types import Json, JsonObject
from mudd_core.config import Config, config_hash, to_dict
from mudd_core.run.build.plan_report import Planned
from mudd_core.run.store.best_step import best_step
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.last_step import last_step
from mudd_core.run.store.metrics import rows_of, samples_of
from mudd_core.run.store.run_folder import RunFolder


def run_values(config: Config, folder: RunFolder) -> JsonObject:
    """Return the config, the progress, the last update, the validations and the checkpoints of a run.

    The entries have the keys of metrics.jsonl.
    """
    rows = list(rows_of(folder))
    updates = [row for row in rows if "val_loss" not in row]
    validations: list[Json] = [{**row} for row in rows if "val_loss" in row]
    reached, samples = last_step(folder), samples_of(folder)
    checkpoints: list[Json] = [*Checkpoints(folder).steps()]
    return {
        "name": config.name,
        "path": str(folder),
        "step": 0 if reached is None else reached.step,
        "steps": config.train.steps,
        "last_update": {**updates[-1]} if updates else None,
        "validations": validations,
        "checkpoints": checkpoints,
        "best_step": best_step(folder),
        "last_sample": {"step": samples[-1].step, "prompt": samples[-1].prompt, "text": samples[-1].text}
        if samples
        else None,
        "config": to_dict(config),
        "config_hash": config_hash(config),
    }


def plan_values(config: Config, plan: Planned, refused: str | None) -> JsonObject:
    """Return the values of a plan. refused: the reason why the training would be refused."""
    return {
        "name": config.name,
        "family": config.model.family,
        "fits": plan.fits,
        "refused": refused,
        "parameters": plan.parameters,
        "flops_per_token": plan.flops_per_token,
        "flops_per_step": plan.flops_per_step,
        "steps": plan.steps,
        "memory": {**plan.memory},
        "checkpoint_bytes": plan.checkpoint_bytes,
        "seconds_per_step": plan.seconds_per_step,
    }
