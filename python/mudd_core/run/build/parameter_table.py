"""The table of a config's parameters."""

from __future__ import annotations

from typing import Any

from mudd_core.config import Config
from mudd_core.engine.model_shape import expected_vocabulary, resolved_model
from mudd_core.engine.optimizer_groups import ParameterGroup, by_name
from mudd_core.run.build.planned_model import plan_model


def parameter_table(config: Config) -> str:
    """Return a table of parameters with shape, role, initializer, optimizer, learning rate and decay."""
    shape = resolved_model(config, expected_vocabulary(config))
    model, engine, _ = plan_model(shape, config, only=True)
    groups = by_name(engine.groups)
    rows: list[tuple[str, ...]] = [("parameter", "shape", "role", "init", "optimizer", "lr", "decay")]
    for name in model.store.names():
        rows.append(_table_row(name, model.store.describe(name), config, groups[name]))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows
    )


def _table_row(name: str, about: dict[str, Any], config: Config, group: ParameterGroup) -> tuple[str, ...]:
    scale = f"({about['init_scale']:g})" if about["init"] in ("normal", "constant") else ""
    return (
        name,
        " x ".join(str(size) for size in about["shape"]),
        about["role"],
        about["init"] + scale,
        group.optimizer if about["trainable"] else "none",
        f"{config.optim.lr * about['lr_scale']:g}" if about["trainable"] else "frozen",
        f"{group.weight_decay * about['decay_scale'] if about['trainable'] else 0:g}",
    )
