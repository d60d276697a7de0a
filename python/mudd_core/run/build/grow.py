"""Start a run from the weights of another one, optionally with more slots (parameter tokens) of a TokenFormer.

Maths: docs/maths/tokenformer.md, 5. The loaded slots come first. The new slots after them have random values (`random`,
as in the authors' programs), or keys of zero (`zero_keys`, as in the paper: with `zoom_dim` unchanged the model
computes the same function), or keys and values of zero (`zero_both`: they can never learn).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Array
from mudd_core.checkpoint import StatePart, dtypes, is_weight
from mudd_core.checkpoint.stored import AnyTensor
from mudd_core.config import Config, ModelConfig, TokenFormerConfig
from mudd_core.config.mesh import CUT_SLOTS
from mudd_core.dist import Comm
from mudd_core.engine.frozen import set_weight
from mudd_core.engine.state import MOMENTS, UPDATES
from mudd_core.models.ngrams import TABLE
from mudd_core.run.build.grown_rows import grown_rows, is_new
from mudd_core.run.build.start_source import Source, read_source, start_path, stored_shapes
from mudd_core.run.records.engine import LoopEngine

if TYPE_CHECKING:
    from mudd_core.engine.model import Model


# Normalizations whose result does not change when slots with zero scores are added (with the same tau).
PRESERVING = ("l2_norm_gelu", "gelu_l2_norm", "l2_norm", "gelu")
_GROWING = ("key", "value", "key_bias")
_PARTS = {
    "attn.q": "qkv",
    "attn.o": "proj",
    "ffn": "ffn",
}  # the slot tensors of a block, and the group of each


def real_rows(name: str, stored: int, slot_number: int) -> int:
    """Return the number of valid leading rows of a stored slot tensor: all, or slot_number (4 times that in the
    FFN).
    """
    if slot_number < 0:
        return stored
    factor = 4 if ".ffn." in name else 1
    rows = slot_number * factor
    if rows > stored:
        raise UserError(
            f"[start] load_parameters_path_slot_number: expected at most {stored // factor}, because '{name}' has "
            f"{stored} stored slots, got {slot_number}"
        )
    return rows


def grows(model: ModelConfig, name: str) -> bool:
    """Return True for the keys, values and key biases of a TokenFormer's slots."""
    return isinstance(model, TokenFormerConfig) and name.rpartition(".")[2] in _GROWING


def grown(name: str, old: Array, fresh: Array, slot_number: int) -> Array:
    """Return `fresh` with its first rows replaced by the valid rows of `old`; raise UserError if they do not fit."""
    rows = real_rows(name, old.shape[0], slot_number)
    if old.shape[1:] != fresh.shape[1:] or rows > fresh.shape[0]:
        raise UserError(
            f"[start] {name}: expected at most {fresh.shape[0]} slots of {fresh.shape[1:]}, got "
            f"{rows} of {old.shape[1:]}; only the number of slots may differ, and it can only grow"
        )
    result = np.array(fresh)
    result[:rows] = dtypes.as_float32(old[:rows])
    return result


def refuse_cut_growth(config: Config, nodes: int) -> None:
    """Raise UserError if slots would grow while nodes shard the weights (mesh.zero=3); only shapes are read."""
    start, model = config.start, config.model
    cut = config.mesh.zero == 3 and nodes > 1
    if not (cut and start.load_parameters_path and isinstance(model, TokenFormerConfig)):
        return
    shapes = stored_shapes(start_path(config))
    slots = {f"blocks.0.{part}.key": model.slots(group) for part, group in _PARTS.items()}
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
        _take_state(engine, model.config, source, start.load_parameters_path_slot_number)
    text += ", with the state of the optimizer" if start.keep_optimizer else ""
    if not start.keep_step:
        return text, source
    if source.step > config.train.steps:
        raise UserError(
            f"[start] keep_step: {source.path} is after the last step of this run, train.steps={config.train.steps}"
        )
    return f"{text}, continued from step {source.step}", source


def _take_state(engine: LoopEngine, model: ModelConfig, source: Source, slot_number: int) -> None:
    """Load the optimizer state of the source, with zeros for new slots and for parameters that were frozen."""
    kept = {plane for name in source.tensors if (plane := name.partition("/")[0]) in MOMENTS}
    parts = engine.state_parts(writable=True)
    shapes = {part.name: part.global_shape for part in parts}
    for part in parts:
        plane, _, name = part.name.partition("/")
        is_column = plane == "column_moment" and grows(model, name)
        if is_column and (slot_number >= 0 or source.tensors[name].shape != shapes[name]):
            raise UserError(
                f"[start] {part.name}: it has means over the slots, whose number changes; set "
                "start.keep_optimizer=false"
            )
        # The optional parts are the mean of train.average, which a new run starts again: its updates are others.
        if not is_weight(part.name) and not part.optional:
            whole = _state_of(part, model, source, kept, slot_number)
            part.array[...] = (
                StatePart(part.name, part.global_shape, 0, whole).cut(part.begin, part.end).array
            )


def _state_of(
    part: StatePart, model: ModelConfig, source: Source, kept: Collection[str], slot_number: int
) -> Array:
    """Return the whole tensor that contains a part of the state. kept: the names of the source's moments."""
    name, fresh = part.name, partial(np.zeros, part.global_shape, part.array.dtype)
    plane, _, parameter = name.partition("/")
    if name not in source.tensors:
        # A parameter that was frozen or absent in the source has no moments there, and no decay to make up for.
        frozen = plane in kept and not any(f"{other}/{parameter}" in source.tensors for other in kept)
        if frozen or is_new(parameter, source.tensors):
            count = np.asarray(source.tensors[UPDATES])[0] if plane == "row_update" else 0
            return np.full(part.global_shape, count, part.array.dtype)
        raise UserError(
            f"[start] {source.path}: '{name}' is missing, because the optimizers differ; set "
            "start.keep_optimizer=false"
        )
    old = source.tensors[name]
    if old.dtype != part.array.dtype:
        raise UserError(
            f"[start] {name}: expected {part.array.dtype}, got {old.dtype}, because the optimizers "
            "differ; set start.keep_optimizer=false"
        )
    if grows(model, parameter):
        return grown(name, np.asarray(old), fresh(), slot_number)
    if parameter == TABLE:
        return grown_rows(np.asarray(old), part.global_shape[0])
    if old.shape != part.global_shape:
        raise UserError(f"[start] {name}: expected shape {part.global_shape}, got {old.shape}")
    return np.asarray(old)


def old_model_config(new: TokenFormerConfig, source: Source, slot_number: int) -> TokenFormerConfig:
    """Return the config of the model before it grew: its run's, or the new one with the stored number of slots."""
    base = source.config.model if source.config is not None else dataclasses.replace(new, zoom_dim=0)
    if not isinstance(base, TokenFormerConfig) or base.block != "pattention" or new.block != "pattention":
        raise UserError("[grow] both models: expected a TokenFormer with slots")

    slots = {
        group: real_rows(f"blocks.0.{part}.key", source.slots(part), slot_number)
        for part, group in _PARTS.items()
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
