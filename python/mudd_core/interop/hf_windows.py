"""Read and write the sliding windows in a config.json of transformers: in all layers, some layers, or none."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.base.types import Json, JsonObject
from mudd_core.config.families import TransformerPPConfig
from mudd_core.config.families.spans import layers_of, spans_of, spans_text
from mudd_core.interop.hf_rows import HfModel, Row, size_of
from mudd_core.interop.settings import Reader

SLIDING, FULL = "sliding_attention", "full_attention"  # names of layer types


@dataclass(frozen=True)
class PeriodicWindows(Row):
    """Sliding windows in the layers that layer_types names, or in all but each period-th layer.

    pattern: the setting with the period, if there is one. window, period: the values of absent settings.
    """

    pattern: str
    period: int
    window: int = 4096

    @property
    def names(self) -> tuple[str, ...]:
        return ("sliding_window", "layer_types", *filter(None, (self.pattern,)))

    def read(self, read: Reader, found: JsonObject) -> JsonObject:
        n_layer = size_of(found, "n_layer")
        period = read.whole(self.pattern, self.period) if self.pattern else self.period
        windowed = windowed_layers(read, n_layer)
        if windowed is None:
            windowed = [layer for layer in range(n_layer) if (layer + 1) % period]
        if not windowed:
            return {}
        if read.config.get("sliding_window", self.window) is None:
            raise read.refusal(
                "sliding_window", "a number of keys, as layer_types has sliding_attention", None
            )
        window = read.whole("sliding_window", self.window)
        return {"sliding_window": window, "sliding_layers": spans_of(windowed, n_layer)}

    def write(self, model: HfModel) -> JsonObject:
        assert isinstance(model, TransformerPPConfig)
        # Without such layers transformers still computes the mask of a window.
        return {"sliding_window": model.sliding_window or self.window, "layer_types": layer_types(model)}


def windowed_layers(read: Reader, n_layer: int) -> list[int] | None:
    """Return the layers of layer_types with a sliding window; None if the setting is absent.

    Raise ValueError for types of layers that mudd_core does not have.
    """
    types, names = read.config.get("layer_types"), (SLIDING, FULL)
    if types is None:
        return None
    if not isinstance(types, list) or len(types) != n_layer or not all(t in names for t in types):
        raise read.refusal("layer_types", f"{n_layer} of {' and '.join(names)}", types)
    return [layer for layer, kind in enumerate(types) if kind == SLIDING]


def layer_types(model: TransformerPPConfig) -> list[Json]:
    """Return the type of each layer, as transformers names it."""
    windowed = layers_of(model.sliding_layers, model.n_layer) if model.sliding_window else ()
    return [SLIDING if layer in windowed else FULL for layer in range(model.n_layer)]


@dataclass(frozen=True)
class MistralWindow(Row):
    """The sliding window of all layers, if there is one."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("sliding_window", "layer_types")

    def read(self, read: Reader, found: JsonObject) -> JsonObject:
        has_window = read.config.get("sliding_window", 0) is not None
        types = read.config.get("layer_types")
        if types is not None and types != [SLIDING if has_window else FULL] * size_of(found, "n_layer"):
            raise read.refusal("layer_types", "null: all layers of a Mistral are alike", types)
        return {"sliding_window": read.whole("sliding_window", 4096) if has_window else 0}

    def write(self, model: HfModel) -> JsonObject:
        assert isinstance(model, TransformerPPConfig)
        return {"sliding_window": model.sliding_window}


@dataclass(frozen=True)
class OneWindow(Row):
    """The sliding window of all layers, if there is one. By default there is none."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("sliding_window",)

    def read(self, read: Reader, found: JsonObject) -> JsonObject:
        has_window = read.config.get("sliding_window") is not None
        return {"sliding_window": read.whole("sliding_window")} if has_window else {}

    def write(self, model: HfModel) -> JsonObject:
        assert isinstance(model, TransformerPPConfig)
        return {"sliding_window": model.sliding_window or None}


@dataclass(frozen=True)
class QwenWindows(Row):
    """Qwen's sliding windows: in the layers that layer_types names, or from layer max_window_layers on."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("use_sliding_window", "sliding_window", "max_window_layers", "layer_types")

    def read(self, read: Reader, found: JsonObject) -> JsonObject:
        n_layer = size_of(found, "n_layer")
        has_window = read.flag("use_sliding_window") and read.config.get("sliding_window", 0) is not None
        named = windowed_layers(read, n_layer)
        if named is None:
            first = read.whole("max_window_layers", 28, low=0)
            windowed = list(range(first, n_layer)) if has_window else []
        else:
            windowed = named
            if windowed and not has_window:
                raise read.refusal("use_sliding_window", "true, as layer_types has sliding_attention", False)
        if not windowed:
            return {}
        spans = spans_of(windowed, n_layer)
        return {"sliding_window": read.whole("sliding_window", 4096), "sliding_layers": spans}

    def write(self, model: HfModel) -> JsonObject:
        assert isinstance(model, TransformerPPConfig)
        windowed = layers_of(model.sliding_layers, model.n_layer) if model.sliding_window else ()
        return {
            "use_sliding_window": bool(windowed),
            "sliding_window": model.sliding_window or None,
            "max_window_layers": min(windowed, default=model.n_layer),
            "layer_types": layer_types(model),
        }


@dataclass(frozen=True)
class NopeLayers(Row):
    """The layers without rotary positions: those with 0 in a list, or each n-th layer."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("no_rope_layers", "no_rope_layer_interval")

    def read(self, read: Reader, found: JsonObject) -> JsonObject:
        listed, interval = self.names
        n_layer = size_of(found, "n_layer")
        rotated = read.config.get(listed)
        if rotated is None:
            every = read.whole(interval, 4)
            rotated = [int((layer + 1) % every != 0) for layer in range(n_layer)]
        if (
            not isinstance(rotated, list)
            or len(rotated) < n_layer
            or not all(one in (0, 1) for one in rotated)
        ):
            raise read.refusal(listed, f"a list of 0 or 1 for each of {n_layer} layers", rotated)
        return {"nope_layers": spans_text(layer for layer in range(n_layer) if not rotated[layer])}

    def write(self, model: HfModel) -> JsonObject:
        assert isinstance(model, TransformerPPConfig)
        return {"no_rope_layers": [int(model.has_rope(layer)) for layer in range(model.n_layer)]}


@dataclass(frozen=True)
class NopeWindows(Row):
    """SmolLM3's sliding windows: in the layers that layer_types names, or in those without rotary positions."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("use_sliding_window", "sliding_window", "layer_types")

    def read(self, read: Reader, found: JsonObject) -> JsonObject:
        n_layer = size_of(found, "n_layer")
        has_window = read.flag("use_sliding_window") and read.config.get("sliding_window") is not None
        windowed = windowed_layers(read, n_layer)
        if windowed is None:
            nope = str(found["nope_layers"])
            windowed = sorted(layers_of(nope, n_layer)) if has_window and nope else []
        if windowed and not has_window:
            raise read.refusal(
                "use_sliding_window", "true and a sliding_window, as layer_types has sliding_attention", False
            )
        if not windowed:
            return {}
        return {"sliding_window": read.whole("sliding_window"), "sliding_layers": spans_of(windowed, n_layer)}

    def write(self, model: HfModel) -> JsonObject:
        assert isinstance(model, TransformerPPConfig)
        return {
            "use_sliding_window": bool(model.sliding_window),
            "sliding_window": model.sliding_window or None,
            "layer_types": layer_types(model),
        }


@dataclass(frozen=True)
class NoWindow(Row):
    """A window as in Mixtral, which is never shorter than the model's longest sequence."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("sliding_window",)

    def read(self, read: Reader, found: JsonObject) -> JsonObject:
        longest = size_of(found, "max_seq_len")
        window = read.whole("sliding_window", longest)
        if window < longest:
            raise ValueError(f"[hf] sliding_window: expected null, got {window!r}")
        return {}

    def write(self, model: HfModel) -> JsonObject:
        return {"sliding_window": None}
