"""Read and write the RoPE settings and sliding windows in a config.json of transformers.

RoPE is plain, linear or llama3, as version 4 or 5 writes it. Windows are for all layers, some layers, or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mudd_core.base.types import JsonObject
from mudd_core.config.families import GPT2Config, TransformerPPConfig
from mudd_core.config.families.transformer_pp import layers_of, spans_of
from mudd_core.interop.hf_rows import HfModel, Row, size_of
from mudd_core.interop.settings import Reader, Settings

_NAMES = {  # names in mudd_core -> names in transformers, for each kind of scaling
    "none": {},
    "linear": {"rope_factor": "factor"},
    "llama3": {
        "rope_factor": "factor",
        "rope_low_freq": "low_freq_factor",
        "rope_high_freq": "high_freq_factor",
        "rope_original_len": "original_max_position_embeddings",
    },
}
_ALWAYS = ("rope_type", "type", "rope_theta", "partial_rotary_factor")
SLIDING, FULL = "sliding_attention", "full_attention"  # names of layer types


@dataclass(frozen=True)
class Rope(Row):
    """RoPE theta and the scaling of the frequencies.

    base: the theta that transformers uses if the setting is absent. is_scaled: the mudd_core family supports scaling.
    """

    base: float
    is_scaled: bool

    @property
    def names(self) -> tuple[str, ...]:
        return (
            "rope_parameters",
            "rope_scaling",
            "rope_theta",
            "partial_rotary_factor",
            "original_max_position_embeddings",
        )

    def read(self, read: Reader, found: JsonObject) -> JsonObject:
        base = _base(read.config, self.base)
        scaling = _scaling(read.config, size_of(found, "max_seq_len"))
        if scaling and not self.is_scaled:
            given = read.config.get("rope_scaling", "a scaling in rope_parameters")
            raise read.refusal("rope_scaling", "null", given)
        return {"rope_base": base, **scaling}

    def write(self, model: HfModel) -> JsonObject:
        """Return theta and the scaling under the names of transformers 4 and 5."""
        assert not isinstance(model, GPT2Config)
        scaling = model.rope_scaling if isinstance(model, TransformerPPConfig) else "none"
        values = {theirs: getattr(model, ours) for ours, theirs in _NAMES[scaling].items()}
        table = {"rope_type": "default" if scaling == "none" else scaling, **values}
        both: JsonObject = {
            "rope_theta": model.rope_base,
            "rope_parameters": {"rope_theta": model.rope_base, **table},
        }
        return both if scaling == "none" else {**both, "rope_scaling": table}


def _base(settings: Settings, default: float) -> float:
    """Return RoPE theta: from the object with the scaling if it has one, else from the separate setting."""
    _, table = _table(settings)
    return Reader("hf", table).number("rope_theta", Reader("hf", settings).number("rope_theta", default))


def _scaling(settings: Settings, longest: int) -> JsonObject:
    """Return the fields for the scaling of the frequencies. longest: the model's longest sequence.

    Raise ValueError for a kind of scaling that mudd_core does not have.
    """
    name, table = _table(settings)
    read = Reader("hf", {f"{name}.{key}": value for key, value in table.items()})
    given = table.get("rope_type", table.get("type")) or "default"
    kind = "none" if given == "default" else given
    if not isinstance(kind, str) or kind not in _NAMES:
        raise read.refusal(f"{name}.rope_type", "one of default, linear, llama3", kind)
    names = _NAMES[kind]
    for place, value in (
        (f"{name}.partial_rotary_factor", table.get("partial_rotary_factor")),
        ("partial_rotary_factor", settings.get("partial_rotary_factor")),
    ):
        if value not in (None, 1):
            raise read.refusal(place, "1.0", value)
    for key, value in table.items():
        if value is not None and key not in _ALWAYS and key not in names.values():
            raise read.refusal(f"{name}.{key}", f"no such setting of rope_type {given}", value)
    if kind == "none":
        return {}
    for key in names.values():
        if table.get(key) is None and key != "original_max_position_embeddings":
            raise ValueError(f"[hf] {name}.{key} is missing")
    found: JsonObject = {"rope_scaling": kind, "rope_factor": read.number(f"{name}.factor", 1.0)}
    if kind == "llama3":
        found["rope_low_freq"] = read.number(f"{name}.low_freq_factor", 1.0)
        found["rope_high_freq"] = read.number(f"{name}.high_freq_factor", 4.0)
        original = read.whole(f"{name}.original_max_position_embeddings", longest)
        # transformers prefers the top-level setting to the one in the object.
        found["rope_original_len"] = Reader("hf", settings).whole(
            "original_max_position_embeddings", original
        )
    return found


def _table(settings: Settings) -> tuple[str, Settings]:
    """Return the name and the value of the object with the scaling; version 4's has priority, as in transformers."""
    for name in ("rope_scaling", "rope_parameters"):
        given = settings.get(name)
        if not given:
            continue
        if not isinstance(given, Mapping):
            raise Reader("hf", settings).refusal(name, "an object", given)
        return name, given
    return "rope_parameters", {}


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
class QwenWindows(Row):
    """Qwen's sliding windows: in the layers that layer_types names, or from layer max_window_layers on."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("use_sliding_window", "sliding_window", "max_window_layers", "layer_types")

    def read(self, read: Reader, found: JsonObject) -> JsonObject:
        n_layer = size_of(found, "n_layer")
        has_window = read.flag("use_sliding_window") and read.config.get("sliding_window", 0) is not None
        types, names = read.config.get("layer_types"), (SLIDING, FULL)
        if types is None:
            first = read.whole("max_window_layers", 28, low=0)
            windowed = list(range(first, n_layer)) if has_window else []
        else:
            if not isinstance(types, list) or len(types) != n_layer or not all(t in names for t in types):
                raise read.refusal("layer_types", f"{n_layer} of {' and '.join(names)}", types)
            windowed = [layer for layer, kind in enumerate(types) if kind == SLIDING]
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
            "layer_types": [SLIDING if layer in windowed else FULL for layer in range(model.n_layer)],
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
