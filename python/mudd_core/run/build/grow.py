"""Start a run from the weights of another one, optionally with more slots (parameter tokens) of a TokenFormer.

Maths: docs/maths/tokenformer.md, 5. The loaded slots come first. The new slots after them have random values (`random`,
as in the authors' programs), or keys of zero (`zero_keys`, as in the paper: with `zoom_dim` unchanged the model
computes the same function), or keys and values of zero (`zero_both`: they can never learn).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Array
from mudd_core.checkpoint import dtypes, is_weight
from mudd_core.checkpoint.stored import AnyTensor
from mudd_core.config import Config, ModelConfig, TokenFormerConfig
from mudd_core.config.mesh import CUT_SLOTS
from mudd_core.dist import Comm
from mudd_core.engine.frozen import set_weight
from mudd_core.models.ngrams import TABLE
from mudd_core.run.build.grown_rows import grown_rows, is_new
from mudd_core.run.build.grown_slots import PARTS, grown, grows, real_rows
from mudd_core.run.build.start_source import Source, read_source, start_path, stored_shapes
from mudd_core.run.build.taken_state import take_state
from mudd_core.run.records.engine import LoopEngine

if TYPE_CHECKING:
    from mudd_core.engine.model import Model


# Normalizations whose result does not change when slots with zero scores are added (with the same tau).
PRESERVING = ("l2_norm_gelu", "gelu_l2_norm", "l2_norm", "gelu")


def refuse_cut_growth(config: Config, nodes: int) -> None:
    """Raise UserError if slots would grow while nodes shard the weights (mesh.zero=3); only shapes are read."""
    start, model = config.start, config.model
    cut = config.mesh.zero == 3 and nodes > 1
    if not (cut and start.load_parameters_path and isinstance(model, TokenFormerConfig)):
        return
    shapes = stored_shapes(start_path(config))
    slots = {f"blocks.0.{part}.key": model.slots(group) for part, group in PARTS.items()}
    known = {name: shapes[name][0] for name in slots if name in shapes}
    if any(
        slots[name] != stored or start.load_parameters_path_slot_number >= 0 for name, stored in known.items()
    ):
        raise UserError(f"[start] {CUT_SLOTS.why}")


def start_weights(
    model: Model,
    source: Source,
    *,
    slot_number: int = -1,
    how: str = "random",
    names: Sequence[str] | None = None,
    there: Collection[str] = (),
) -> Iterator[tuple[str, Array]]:
    """Yield names and weights for a new, initialized model, one at a time. how: the value of start.grow_init.

    names: the parameters in the source; None: all. there: names to skip, because the model already has their weights.

    Raise UserError if the source has other names, or if a shape does not fit.
    """
    names = model.store.names() if names is None else names
    extra = sorted(name for name in source.tensors if is_weight(name) and name not in names)
    if extra:
        raise UserError(
            f"[start] {source.path}: '{extra[0]}' has no place in this model ({len(extra)} left over)"
        )
    new = {name for name in names if is_new(name, source.tensors)}
    if missing := [name for name in names if name not in source.tensors and name not in new]:
        raise UserError(f"[start] {source.path}: '{missing[0]}' is missing")
    for name in names:
        if name in there or name in new:
            continue
        old, shape = source.tensors[name], tuple(model.store.describe(name)["shape"])
        if not grows(model.config, name) or (old.shape == shape and slot_number < 0):
            if name == TABLE:
                old = grown_rows(np.asarray(old), shape[0])
            if old.shape != shape:
                raise UserError(f"[start] {name}: expected shape {shape}, got {old.shape}")
            if model.store.holds(0, name):
                # kept unchanged, because the model may store this type
                half = old.dtype in (dtypes.BF16, np.float16)
                yield name, np.asarray(old) if half else np.asarray(old, np.float32)
            continue
        if not model.store.holds_all:
            raise UserError(f"[start] {CUT_SLOTS.why}")
        initial = model.parameters[name]
        zero = how == "zero_both" or (how == "zero_keys" and not name.endswith(".value"))
        fresh = np.zeros_like(initial) if zero else initial
        yield name, grown(name, np.asarray(old), fresh, slot_number)


def take_start(config: Config, model: Model, source: Source) -> str:
    """Load the weights of a source into an initialized model; return a description for the user."""
    start = config.start
    number = start.load_parameters_path_slot_number
    weights = start_weights(model, source, slot_number=number, how=start.grow_init)
    rounded = sum(set_weight(model.store, name, value) for name, value in weights)
    model.store.repack()  # updates packed copies of shared weights in executors that are already planned
    text = f"started from {source.path}"
    if rounded:
        text += f"; {rounded:,} frozen weights were rounded (train.frozen_dtype={config.train.frozen_dtype})"
    if isinstance(config.model, TokenFormerConfig) and source.slots("attn.q"):
        old = real_rows("attn", source.slots("attn.q"), number)
        text += f": {old:,} slots of {config.model.slot_num:,}, the new ones {start.grow_init}"
    return text


def start_from(
    config: Config, engine: LoopEngine, model: Model, comm: Comm | None = None
) -> tuple[str, Source]:
    """Load the weights of config.start into a new run's engine; return a description for the user, and the source.

    comm: the communicator of all ranks of the run. All ranks must call this; each reads its part, one tensor at a time.
    """
    start = config.start
    source = read_source(start_path(config), state=start.keep_optimizer, comm=comm)
    text = take_start(config, model, source)
    if start.keep_optimizer:
        take_state(engine, model.config, source, start.load_parameters_path_slot_number)
    text += ", with the state of the optimizer" if start.keep_optimizer else ""
    if not start.keep_step:
        return text, source
    if source.step > config.train.steps:
        raise UserError(
            f"[start] keep_step: {source.path} is after the last step of this run, train.steps={config.train.steps}"
        )
    return f"{text}, continued from step {source.step}", source


def old_model_config(new: TokenFormerConfig, source: Source, slot_number: int) -> TokenFormerConfig:
    """Return the config of the model before it grew: its run's, or the new one with the stored number of slots."""
    base = source.config.model if source.config is not None else dataclasses.replace(new, zoom_dim=0)
    if not isinstance(base, TokenFormerConfig) or base.block != "pattention" or new.block != "pattention":
        raise UserError("[grow] both models: expected a TokenFormer with slots")

    slots = {
        group: real_rows(f"blocks.0.{part}.key", source.slots(part), slot_number)
        for part, group in PARTS.items()
    }
    return dataclasses.replace(
        base,
        vocab_size=new.vocab_size,
        max_seq_len=new.max_seq_len,
        slot_num=slots["qkv"],
        proj_slot_num=slots["proj"],
        ffn_slot_num=slots["ffn"],
    )


def preserving_zoom(old: TokenFormerConfig, new: TokenFormerConfig) -> float:
    """Return the zoom_dim with which zero keys change nothing; raise UserError with the reason if there is none."""
    if new.normalize_type not in PRESERVING:
        reason = {
            "softmax": "exp(0) = 1 for every new slot",
            "gelu_layer_norm": "the mean over the slots changes with their number",
        }[new.normalize_type]
        raise UserError(f"[grow] --preserve: impossible with normalize_type={new.normalize_type}: {reason}")
    zoom = old.zoom_dim or float(old.slots("qkv"))
    if not old.zoom_dim and (old.slots("proj"), old.slots("ffn")) != (zoom, 4 * zoom):
        raise UserError(
            f"[grow] --preserve: impossible with {zoom:g}, {old.slots('proj')} and {old.slots('ffn')} slots: one "
            "zoom_dim z holds the scores at the roots of z, z and 4 z"
        )
    return zoom


def largest_change(before: Model, after: Model, tokens: Array) -> tuple[float, float]:
    """Return (largest change of a logit, largest logit before) of two models on token ids [B, T]."""
    old, new = before.logits(tokens), after.logits(tokens)
    return float(np.abs(new - old).max()), float(np.abs(old).max())


def with_weights(config: ModelConfig, tensors: Mapping[str, AnyTensor]) -> Model:
    """Return a model of this config with these weights."""
    from mudd_core.engine.model import Model

    model = Model(config, initialize=False)
    for name, shape in ((name, view.shape) for name, view in model.parameters.items()):
        model.set_parameter(
            name, np.ascontiguousarray(dtypes.as_float32(np.asarray(tensors[name])[: shape[0]]))
        )
    return model
