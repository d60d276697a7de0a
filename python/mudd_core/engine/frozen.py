"""Apply train.trainable, which selects the parameters that train, and store the others as train.frozen_dtype says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Array, Float32
from mudd_core.checkpoint import dtypes
from mudd_core.checkpoint.stored import AnyTensor, StoredTensor, made_tensor
from mudd_core.config import Config
from mudd_core.config.suggest import nearest
from mudd_core.engine.lora import is_adapter
from mudd_core.engine.name_patterns import choose_names
from mudd_core.engine.parameter_tree import counted, leaves_of

if TYPE_CHECKING:
    from mudd_core import _core
    from mudd_core.config import TuneConfig


def trained_names(patterns: str, names: Sequence[str]) -> list[str]:
    """Return the names that match the patterns, in order.

    patterns: of shells (`*`, `?`, `[ab]`), separated by commas; `!` before a pattern excludes. A name trains if a
    pattern without `!` matches it (or there is no such pattern) and no pattern with `!` does. Raise UserError for a
    pattern that matches nothing, and if nothing trains.
    """
    selectors = list(filter(None, (word.strip() for word in patterns.split(","))))
    chosen = choose_names(selectors, names, "[config] train.trainable")
    if not chosen:
        raise UserError(
            f"[config] train.trainable: expected at least one parameter to train, '{patterns}' "
            "leaves none; remove a pattern that starts with '!'"
        )
    return chosen


def choose_trained(store: _core.ParamStore, patterns: str) -> list[str]:
    """Return the parameters of a store that train by the patterns; raise UserError if one is stored in 16 bits."""
    chosen = trained_names(patterns, store.names())
    for name in chosen:
        if (kind := store.describe(name)["stored"]) != "float32":
            raise UserError(
                f"[config] train.trainable: expected parameters stored in float32, got '{name}', "
                f"which is in {kind}; leave it out ('!{name}'), or create the model without `stored`"
            )
    return chosen


def trained_note(store: _core.ParamStore, tune: TuneConfig) -> str:
    """Return a note with the number of trained parameters, and the field that selects them; empty if all train."""
    trained, count = store.trained_elements, int(store.elements)
    field = "train.trainable" if tune.method == "full" else f"tune.method={tune.method}"
    return "" if trained == count else f"{trained:,} of {count:,} parameters train ({field})"


# Types of the core by their names in safetensors files and in train.frozen_dtype.
NARROW = {"BF16": "bfloat16", "F16": "float16"}
_FILE_NAMES = {"float32": "F32", **{kind: name for name, kind in NARROW.items()}}
# Magnitudes that round to infinity: the largest value plus half a unit in the last place.
_INFINITE_FROM = {"bfloat16": 255.5 / 256 * 2.0**128, "float16": 65520.0}
OF_FIELD = {"bf16": "BF16", "fp16": "F16"}


class Weights(Mapping[str, Float32]):
    """Mapping of names to float32 weights: read-only views.

    Each access to a weight stored in 16 bits returns a copy.
    """

    def __init__(self, store: _core.ParamStore, trained: Sequence[str] = ()) -> None:
        """Wrap a store. trained: the names of the parameters that train; empty: all of them."""
        self._trained = trained
        self._store, self._names = store, dict.fromkeys(store.names())
        for name in list(self._names)[:1]:
            if store.holds(0, name) or store.holds_all:
                store.view(0, name)  # raises an error at once for a model without memory

    def __getitem__(self, name: str) -> Float32:
        if name not in self._names:
            hint = nearest(str(name), self._names) or "; print(model.parameters) lists them"
            raise KeyError(f"[parameters] there is no '{name}'{hint}")
        begin, end = self._store.held(0, name)
        about = self._store.describe(name)
        if end - begin != np.prod(about["shape"], dtype=np.int64):
            raise RuntimeError(
                f"[parameters] {name}: it is sharded across the ranks (mesh.zero=3), and this rank "
                f"has elements {begin:,} to {end:,}"
            )
        if about["stored"] == "float32":
            view: Float32 = self._store.view(0, name)
            return view
        values: Float32 = self._store.values(name)
        values.flags.writeable = False
        return values

    if not TYPE_CHECKING:  # a type checker reports the assignment itself

        def __setitem__(self, name, value):
            raise TypeError(
                f"[parameters] weights are read-only here; type model.set_parameter({name!r}, array), or "
                "model.load_state_dict(arrays) for all"
            )

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    if not TYPE_CHECKING:  # a type checker reports the call itself

        def __call__(self):
            raise TypeError(
                "[parameters] model.parameters is a mapping of names to weights; type model.parameters.items(), or "
                "model.n_parameters for their number; a Trainer has the optimizer"
            )

    def __repr__(self) -> str:
        leaves = leaves_of(self._store, self._trained)
        lines = (
            f"  {name:<40} [{' x '.join(map(str, leaf.shape))}]{'' if leaf.trained else ' frozen'}"
            for name, leaf in leaves.items()
        )
        return "\n".join([f"{len(leaves)} names, {counted(leaves)}:", *lines])


def weight_view(store: _core.ParamStore, name: str, writable: bool = False) -> Array:
    """Return a view of a weight in its stored type."""
    view: Array = store.view(0, name, writable)
    return view.view(dtypes.BF16) if store.describe(name)["stored"] == "bfloat16" else view


def set_weight(store: _core.ParamStore, name: str, value: Array) -> int:
    """Write float32, BF16 or float16 values into a weight of any type; return how many of them were rounded.

    Raise UserError with name and value for a finite value that would become infinite in a 16-bit type.
    """
    if not store.holds(0, name):  # only other ranks have this weight
        return 0
    if np.shape(value) and value.dtype in (dtypes.BF16, np.float16):
        own = weight_view(store, name)
        if value.dtype == own.dtype:
            store.set(0, name, value.view(np.uint16) if value.dtype == dtypes.BF16 else value)
            return 0
        value = dtypes.as_float32(value)
    require_in_range(store, name, value)
    return int(store.set_values(name, value))


def stored_as(store: _core.ParamStore, name: str, tensor: AnyTensor) -> StoredTensor:
    """Return a weight in the form that set_weight stores, converted on request; the errors are the same."""
    about = store.describe(name)
    kind = _FILE_NAMES[about["stored"]]
    dtype = dtypes.numpy_dtype(kind)
    assert dtype is not None

    def make() -> Array:
        values = np.asarray(tensor)
        if values.dtype == dtype:
            return values
        require_in_range(store, name, values)
        return dtypes.rounded(dtypes.as_float32(values), kind)

    return made_tensor(tuple(about["shape"]), dtype, make)


def require_in_range(store: _core.ParamStore, name: str, value: Array) -> None:
    """Raise UserError for a finite value that would become infinite in the weight's 16-bit type."""
    kind = store.describe(name)["stored"]
    if kind not in _INFINITE_FROM:
        return
    size = np.abs(dtypes.as_float32(value))
    bad = np.flatnonzero(np.isfinite(size) & (size >= np.float32(_INFINITE_FROM[kind])))
    if bad.size:
        raise UserError(
            f"[model] {name}: expected weights that {kind} can hold, got "
            f"{np.reshape(value, -1)[bad[0]]:g} at element {bad[0]:,} ({bad.size:,} in all), which "
            "would be infinite; store it as fp32 (train.frozen_dtype=fp32) or train it"
        )


def frozen_types(
    store: _core.ParamStore, config: Config, found: Mapping[str, str], resumed: bool
) -> dict[str, str]:
    """Return the 16-bit type, "bfloat16" or "float16", of each parameter that a run stores in 16 bits, by name.

    store: the store of a model of this shape. found: the safetensors types of the given weights, by name. resumed: the
    weights come from a checkpoint of this run and keep their types.
    """
    train = config.train
    if not config.trained:
        return {}
    names = store.names()
    trained = set(trained_names(config.trained, names))
    asked = None if resumed or train.frozen_dtype == "stored" else OF_FIELD.get(train.frozen_dtype, "F32")
    types = {}
    for name in names:
        kind = NARROW.get(asked or found.get(name, "F32"))
        if kind is not None and name not in trained and _may_be_narrow(store, name):
            types[name] = kind
    return types


def _may_be_narrow(store: _core.ParamStore, name: str) -> bool:
    return not is_adapter(name) and bool(store.describe(name)["may_be_narrow"])


def is_exact(values: Array, kind: str) -> bool:
    """Return True if float32 values are exact in "BF16" or "F16"."""
    if kind == "BF16":
        return not np.any(np.ascontiguousarray(values).view(np.uint32) & 0xFFFF)
    with np.errstate(over="ignore"):
        return bool(np.array_equal(values.astype(np.float16).astype(np.float32), values))


def stored_note(store: _core.ParamStore) -> str:
    """Return a note with the number of frozen parameters that are stored in 16 bits; empty if there are none."""
    counts: dict[str, int] = {}
    for name in store.names():
        about = store.describe(name)
        if about["stored"] != "float32":
            counts[about["stored"]] = counts.get(about["stored"], 0) + int(
                np.prod(about["shape"], dtype=np.int64)
            )
    return ", ".join(
        f"{count:,} frozen parameters are stored in {kind} (train.frozen_dtype)"
        for kind, count in counts.items()
    )
