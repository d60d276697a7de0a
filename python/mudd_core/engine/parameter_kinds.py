"""The kinds of parameters of a run: shapes, initializers and rates, without any weights."""

from __future__ import annotations

from mudd_core.config import Config
from mudd_core.config.schema import lora_of
from mudd_core.engine.model import Model
from mudd_core.engine.model_shape import expected_vocabulary, resolved_model
from mudd_core.engine.optimizer_groups import assign_scales, by_name, optimizer_groups

HEAD = ("parameter", "layers", "shape", "role", "initial deviation", "learning rate factor", "rate", "decay")


def parameter_kinds(config: Config, vocab_size: int = 0) -> list[tuple[str, ...]]:
    """Return the rows of a table with the columns HEAD; parameters that differ only in their layer are one kind.

    vocab_size: the size for the model; 0: as the config and its tokenizer set it. Raise UserError if these do not have
    one.
    """
    shape = resolved_model(config, vocab_size or expected_vocabulary(config))
    store = Model(shape, booked_only=True, lora=lora_of(config)).store
    groups = optimizer_groups(store, config.optim)
    assign_scales(store, config, groups)
    decay = {name: group.weight_decay for name, group in by_name(groups).items()}
    counts: dict[tuple[str, ...], int] = {}
    for name in store.names():
        about = store.describe(name)
        normal = f"{about['init_scale']:g}" if about["init"] in ("normal", "constant") else about["init"]
        factor = float(about["lr_scale"])
        row = (
            _without_layer(name),
            " x ".join(str(size) for size in about["shape"]),
            about["role"],
            normal,
            f"{factor:g}",
            f"{config.optim.lr * factor:g}",
            f"{decay[name] * about['decay_scale']:g}",
        )
        counts[row] = counts.get(row, 0) + 1
    return [(row[0], str(count) if "*" in row[0] else "", *row[1:]) for row, count in counts.items()]


def _without_layer(name: str) -> str:
    """Return the name with a star in place of its layer."""
    return ".".join("*" if part.isdigit() else part for part in name.split("."))
