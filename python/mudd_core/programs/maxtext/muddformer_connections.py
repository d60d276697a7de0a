"""Connections of the JAX program for MUDDFormer: settings, tensors and shapes (docs/maths/muddformer.md, 1, 4.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NotRequired, TypedDict

from mudd_core.config.families import MUDDFormerConfig
from mudd_core.interop.layout import Entry, Index
from mudd_core.interop.settings import LARGEST, Reader, Settings, sizes
from mudd_core.interop.system import Shapes
from mudd_core.programs.maxtext.keys_weights import mixing_names

_TYPES = ("qkvm", "qkvr")
_PATTERNS = ("q,k,v,m", "qkvm", "qk,vm")  # groups of streams that one kernel computes
# Activation of the generator: name in MaxText -> name here. For equal activations the first name is exported.
ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}
_FIX = "dynamic_dense_fix_last_layer"
_FIRST: dict[str, Index] = {"w2": (slice(None), 0), "bias": (0,)}  # the index of the first stream in a tensor


class _Widths(TypedDict):
    hidden_round: bool
    last_expand: int
    hidden: NotRequired[str]


class Connections(_Widths):
    """The config fields of the connections."""

    activation: str
    prenorm: bool
    postnorm: bool
    last_norm: bool


def connections(read: Reader, layers: int, shapes: Shapes) -> Connections:
    """Return the config fields of the connections; a missing setting for the last layer's streams is added."""
    config = read.config
    last = shapes.get(f"decoder/layers_{layers - 1}/dense_proj2.bias", (1,))
    if config.get(_FIX) is None and isinstance(config, dict):
        config[_FIX] = last[0] == 1
    read.choice("dynamic_dense_type", _TYPES[0], _TYPES)
    pattern, prenorm = config.get("ddw_gen_pattern") or _PATTERNS[0], read.flag("mudd_prenorm")
    if pattern not in _PATTERNS[: 1 if prenorm else None]:
        allowed = _PATTERNS[0] + (", as mudd_prenorm is on" if prenorm else " or qkvm or qk,vm")
        raise ValueError(f"[muddformer_jax] ddw_gen_pattern: expected {allowed}, got {pattern!r}")
    postnorm = read.flag("mudd_postnorm") and pattern == _PATTERNS[0]  # the other patterns have no postnorm
    return {
        **_generator(read, shapes, layers),
        "activation": ACTIVATIONS[read.choice("dynamic_dense_act_cls", "gelu", tuple(ACTIVATIONS))],
        "prenorm": prenorm,
        "postnorm": postnorm,
        "last_norm": fixed_last(config) or not postnorm,
    }


def fixed_last(config: Settings) -> bool:
    """Return whether the last layer has one stream; otherwise it has four, and the head reads the first."""
    return bool(config.get(_FIX, True))


def _generator(read: Reader, shapes: Shapes, layers: int) -> _Widths:
    """Return the generator widths from the settings; missing settings follow from the tensors."""
    config, have = read.config, []
    for n in range(layers):
        count = 4 if n < layers - 1 or not fixed_last(config) else 1
        name = f"decoder/layers_{n}/dense_proj2.bias"
        if name not in shapes or f"decoder/layers_{n}/dynamic_dense_conn1/kernel" not in shapes:
            raise ValueError(f"[muddformer_jax] weights: the connections of layer {n} are missing")
        if shapes[name] != (count, n + 2):
            raise ValueError(
                f"[muddformer_jax] {name}: expected {(count, n + 2)} of {_FIX} "
                f"{str(fixed_last(config)).lower()}, got {shapes[name]}"
            )
        have.append(sizes(read.system, shapes, f"decoder/layers_{n}/dynamic_dense_conn1/kernel", 2)[1])
    rounds, expand = config.get("dynamic_dense_hidden_round"), _factors(read, layers)
    ones = [1.0] * (layers - 1)
    for hidden_round in (True, False) if rounds is None else (read.flag("dynamic_dense_hidden_round"),):
        for times in ([*ones, 4.0], [*ones, 1.0]) if expand is None else (expand,):
            if have == [_width(n, layers, times[n], hidden_round, fixed_last(config)) for n in range(layers)]:
                return _as_ours(have, hidden_round, times)
    raise ValueError(f"[muddformer_jax] dynamic_dense_conn1: widths {have} do not follow from the settings")


def shapes_of_settings(read: Reader, width: int, layers: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the generators' first matrices and biases from the settings. width: of the model."""
    expand, fixed = _factors(read, layers) or [1.0] * layers, fixed_last(read.config)
    rounds, shapes = read.flag("dynamic_dense_hidden_round", False), dict[str, tuple[int, ...]]()
    for n in range(layers):
        hidden = _width(n, layers, expand[n], rounds, fixed)
        shapes[f"decoder/layers_{n}/dynamic_dense_conn1/kernel"] = (width, hidden)
        shapes[f"decoder/layers_{n}/dense_proj2.bias"] = (1 if fixed and n == layers - 1 else 4, n + 2)
    return shapes


def _factors(read: Reader, layers: int) -> list[float] | None:
    """Return dynamic_dense_hidden_expand as one positive factor for each layer; None if it is not set.

    The setting may be one factor for all layers. Raise ValueError if a factor is so large that widths overflow.
    """
    given = read.config.get("dynamic_dense_hidden_expand")
    if given is None:
        return None
    values = list(given) if isinstance(given, list | tuple) else [given] * layers
    numbers = [value for value in values if isinstance(value, int | float) and 0 < value < LARGEST]
    if not len(numbers) == len(values) == layers:
        raise read.refusal("dynamic_dense_hidden_expand", f"{layers} positive numbers", given)
    return numbers


def _width(layer: int, layers: int, times: float, hidden_round: bool, fixed: bool) -> int:
    width = int((1 if fixed and layer == layers - 1 else 4) * (layer + 2) * times)
    return (width // 64 + 1) * 64 if hidden_round else width


def _as_ours(widths: list[int], hidden_round: bool, times: Sequence[float]) -> _Widths:
    """Return the config fields for these widths: the rule if it yields them, otherwise an explicit list."""
    whole = times[-1] == int(times[-1]) and times[-1] >= 1
    rule: _Widths = {"hidden_round": hidden_round, "last_expand": int(times[-1]) if whole else 1}
    asked = MUDDFormerConfig(n_layer=len(widths), **rule)
    if widths == [asked.generator_width(n) for n in range(len(widths))]:
        return rule
    return {**rule, "hidden": ",".join(map(str, widths))}


def expansion(model: MUDDFormerConfig) -> list[float]:
    """Return dynamic_dense_hidden_expand for the model's widths, plus half a channel, which the program rounds off."""
    if not model.hidden:
        return [*[1.0] * (model.n_layer - 1), model.last_expand]
    return [
        (model.generator_width(n) + 0.5) / (model.mixtures(n) * len(model.sources(n)))
        for n in range(model.n_layer)
    ]


def mixing(model: MUDDFormerConfig, *, fixed: bool) -> Iterator[Entry]:
    """Yield the connections' parameters. fixed: the result of fixed_last."""
    last = f"blocks.{model.n_layer - 1}.mix."
    for ours, theirs in mixing_names(model):
        if fixed or not ours.startswith(last):
            yield Entry(ours, theirs)
        elif not ours.endswith("post_gain"):  # only the first of the last layer's streams
            yield Entry(ours, theirs, index=_FIRST.get(ours.removeprefix(last), ()))


def mixing_shapes(model: MUDDFormerConfig, *, fixed: bool) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the connections' tensors, including tensors of streams that nothing reads."""
    shapes: dict[str, tuple[int, ...]] = {}
    if model.postnorm and not fixed:
        shapes[f"decoder/mudd_postnorm_{model.n_layer - 1}/scale"] = (model.d_model,)
    for entry in mixing(model, fixed=fixed):
        layer = int(entry.ours.split(".")[1])
        if entry.ours.endswith("gain"):
            shapes[entry.theirs] = (model.d_model,)
            continue
        states, hidden = layer + 2, model.generator_width(layer)
        count = model.mixtures(layer) if fixed else 4
        shapes[entry.theirs] = {
            "w1": (model.d_model, hidden),
            "w2": (hidden, count, states),
            "bias": (count, states),
        }[entry.ours.rsplit(".", 1)[1]]
    return shapes
