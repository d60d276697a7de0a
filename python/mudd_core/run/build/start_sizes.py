"""A comparison of a model with the weights that a run starts from, before its text is read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from mudd_core.base.errors import UserError
from mudd_core.checkpoint import is_weight
from mudd_core.config import Config, ModelConfig
from mudd_core.config.fields import walk
from mudd_core.engine.model import Model
from mudd_core.engine.model_shape import resolved_model
from mudd_core.models.ngrams import TABLE
from mudd_core.run.build.grown_rows import is_new, require_multiple
from mudd_core.run.build.grown_slots import grows
from mudd_core.run.build.start_source import base_path, run_and_step, stored_shapes
from mudd_core.run.store.json_files import facts_of, read_saved_config
from mudd_core.run.store.run_as_text import trained_further
from mudd_core.run.store.run_folder import RunFolder

Shapes = Mapping[str, tuple[int, ...]]
_BLOCK = re.compile(r"blocks\.(\d+)\.")
_EMBEDDING = "embed"
_NGRAM_ROWS, _NGRAM_LAYERS = "ngram_rows", "ngram_layers"


def require_same_sizes(config: Config, folder: RunFolder | None = None) -> None:
    """Raise UserError with both sizes if start.load_parameters_path has weights of another model.

    It has the command or call that trains that model. Call it after check_start; it reads no tensor. folder: as there.
    """
    if not config.start.load_parameters_path:
        return
    path = base_path(config, folder)
    there = {name: shape for name, shape in stored_shapes(path).items() if is_weight(name)}
    run, _ = run_and_step(path, False)
    saved = read_saved_config(run) if run is not None and run.holds_run else None
    if not there or (
        saved is not None and saved.tune.method == "lora"
    ):  # only adapters: refused with a reason
        return
    vocabulary = there.get(_EMBEDDING, (257,))[0]
    model = resolved_model(config, config.model.vocab_size or vocabulary)
    store = Model(model, booked_only=True).store
    here = {name: tuple(store.describe(name)["shape"]) for name in store.names()}
    if (wrong := _first_other(model, here, there)) is None:
        return
    sizes = list(_layers(here, there))
    if run is not None and saved is not None:
        known = facts_of(run).get("vocab_size")
        size = known if isinstance(known, int) else vocabulary
        sizes = list(_sizes(resolved_model(saved, saved.model.vocab_size or size), model)) or sizes
    listed = "; ".join(sizes) or wrong
    text = config.data.path if saved is None or config.data.path != saved.data.path else "FILE"
    way_out = "give the config of that model"
    if run is not None and saved is not None:
        steps = config.train.steps if config.train.steps != saved.train.steps else 0
        line = trained_further(str(run), text or "FILE", config.start.load_parameters_path, steps)
        way_out = f"to train that model further on other text:\n  {line}"
    raise UserError(
        f"[start] load_parameters_path: expected weights of this model, got a model of another size in {path}: "
        f"{listed}; {way_out}"
    )


def _first_other(model: ModelConfig, here: Shapes, there: Shapes) -> str | None:
    """Return a description of the first tensor that does not fit; None if all fit."""
    for name in (*here, *there):
        ours, theirs = here.get(name), there.get(name)
        if is_new(name, there):
            continue
        if ours is None or theirs is None:
            return f"'{name}' only {'there' if ours is None else 'here'}"
        fits = ours[1:] == theirs[1:] if grows(model, name) or name == TABLE else ours == theirs
        if fits and name == TABLE:
            require_multiple(ours[0], theirs[0])
        if not fits:
            return f"'{name}' {list(theirs)} there, {list(ours)} here"
    return None


def _sizes(there: ModelConfig, here: ModelConfig) -> Iterator[str]:
    """Yield the families, if they differ, and the sizes that differ between two models."""
    if there.family != here.family:
        yield f"family {there.family} there, {here.family} here"
    ours = {info.path: info.value for info in walk(here)}
    counts = [info for info in walk(there) if info.kind is int or info.path == _NGRAM_LAYERS]
    if there.ngram_rows and here.ngram_rows and here.ngram_rows % there.ngram_rows == 0:  # may grow
        counts = [info for info in counts if info.path != _NGRAM_ROWS]
    for info in counts:
        if info.value != ours.get(info.path, info.value):
            yield f"{info.path.removeprefix('model.')} {info.value!r} there, {ours[info.path]!r} here"


def _layers(here: Shapes, there: Shapes) -> Iterator[str]:
    """Yield the numbers of layers if they differ."""
    ours, theirs = (
        1 + max((int(at[1]) for at in map(_BLOCK.match, names) if at), default=-1) for names in (here, there)
    )
    if ours != theirs:
        yield f"n_layer {theirs} there, {ours} here"
