"""Read and write the RoPE settings in a config.json of transformers: plain, linear, llama3 or partial, also by layer.

Version 4 and 5 of transformers write them under different names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mudd_core.base.types import JsonObject
from mudd_core.config.families import GPT2Config, MixtralConfig, TransformerPPConfig
from mudd_core.interop.hf_rows import HfModel, Row, size_of
from mudd_core.interop.hf_windows import FULL, SLIDING
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
        scaling = scaling_fields(*_table(read.config), read.config, size_of(found, "max_seq_len"))
        if scaling and not self.is_scaled:
            given = read.config.get("rope_scaling", "a scaling in rope_parameters")
            raise read.refusal("rope_scaling", "null", given)
        return {"rope_base": base, **scaling}

    def write(self, model: HfModel) -> JsonObject:
        """Return theta and the scaling under the names of transformers 4 and 5."""
        assert not isinstance(model, GPT2Config)
        table = scaling_table(model)
        both: JsonObject = {
            "rope_theta": model.rope_base,
            "rope_parameters": {"rope_theta": model.rope_base, **table},
        }
        return both if len(table) == 1 else {**both, "rope_scaling": table}


@dataclass(frozen=True)
class PartialRope(Row):
    """RoPE theta, and the fraction of each head that is rotated; the frequencies are not scaled.

    theta, fraction: the separate settings. rotated: the fraction if the setting is absent. copies: settings that
    version 4 of transformers also writes, with the same values as theta and fraction.
    """

    theta: str
    fraction: str
    rotated: float
    copies: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return ("rope_parameters", "rope_scaling", self.theta, self.fraction, *self.copies)

    def read(self, read: Reader, found: JsonObject) -> JsonObject:
        name, table = _table(read.config)
        kind = table.get("rope_type", table.get("type")) or "default"
        if kind != "default":
            raise read.refusal(f"{name}.rope_type", "default", kind)
        for key, value in table.items():
            if value is not None and key not in _ALWAYS:
                raise read.refusal(f"{name}.{key}", "no such setting of rope_type default", value)
        own = Reader("hf", table)
        base = own.number("rope_theta", read.number(self.theta, 1e4))
        rotated = own.number("partial_rotary_factor", read.number(self.fraction, self.rotated))
        for copy, value in zip(self.copies, (base, rotated), strict=False):
            if read.number(copy, value) != value:
                raise read.refusal(copy, f"{value:g}, as in the other settings of RoPE", read.config[copy])
        return {"rope_base": base, "rope_fraction": rotated}

    def write(self, model: HfModel) -> JsonObject:
        """Return theta and the fraction under the names of transformers 4 and 5."""
        assert not isinstance(model, MixtralConfig)
        base, rotated = model.rope_base, model.rope_fraction
        table: JsonObject = {
            "rope_type": "default",
            "rope_theta": base,
            "partial_rotary_factor": rotated,
        }
        return {self.theta: base, self.fraction: rotated, "rope_parameters": table}


def scaling_table(model: HfModel) -> JsonObject:
    """Return rope_type and, if the frequencies are scaled, the settings of the scaling."""
    scaling = model.rope_scaling if isinstance(model, TransformerPPConfig) else "none"
    values = {theirs: getattr(model, ours) for ours, theirs in _NAMES[scaling].items()}
    return {"rope_type": "default" if scaling == "none" else scaling, **values}


def _base(settings: Settings, default: float) -> float:
    """Return RoPE theta: from the object with the scaling if it has one, else from the separate setting."""
    _, table = _table(settings)
    return Reader("hf", table).number("rope_theta", Reader("hf", settings).number("rope_theta", default))


def scaling_fields(name: str, table: Settings, settings: Settings, longest: int) -> JsonObject:
    """Return the fields for the scaling of the frequencies in a table.

    name: the setting with the table. settings: all settings of the model. longest: its longest sequence. Raise
    ValueError for a kind of scaling that mudd_core does not have.
    """
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
class RopeByType(Row):
    """RoPE theta of each type of layer, and the scaling of the frequencies in the layers without a window.

    base, local_base: the values of absent settings. local: the separate setting for windows, if there is one. Raise
    ValueError for a theta that versions of transformers use differently.
    """

    base: float
    local_base: float
    local: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return ("rope_parameters", "rope_scaling", "rope_theta", *filter(None, (self.local,)))

    def read(self, read: Reader, found: JsonObject) -> JsonObject:
        tables = {kind: _table_of(read, kind) for kind in (FULL, SLIDING)}
        scaling = read.config.get("rope_scaling") or {}
        if not isinstance(scaling, Mapping):
            raise read.refusal("rope_scaling", "an object", scaling)
        name = "rope_scaling" if scaling else f"rope_parameters.{FULL}"
        full, sliding = {**tables[FULL], **scaling}, tables[SLIDING]
        longest = size_of(found, "max_seq_len")
        fields = scaling_fields(name, full, {}, longest)
        if scaling_fields(f"rope_parameters.{SLIDING}", sliding, {}, longest):
            raise read.refusal(f"rope_parameters.{SLIDING}.rope_type", "default", sliding["rope_type"])
        base = read.number("rope_theta", self.base)
        if not self.local and base != self.local_base and "rope_theta" not in sliding:
            # Version 4 of transformers uses it for the windows too, version 5 the default.
            wanted = f"{self.local_base:g}, or a rope_theta in rope_parameters.{SLIDING}"
            raise read.refusal("rope_theta", wanted, base)
        local = read.number(self.local, self.local_base) if self.local else self.local_base
        return {
            "rope_base": Reader("hf", full).number("rope_theta", base),
            "rope_local_base": Reader("hf", sliding).number("rope_theta", local),
            **fields,
        }

    def write(self, model: HfModel) -> JsonObject:
        """Return theta and the scaling under the names of transformers 4 and 5."""
        assert isinstance(model, TransformerPPConfig)
        table = scaling_table(model)
        # Without windows any theta is right, so the usual one is written.
        local = model.rope_local_base or (model.rope_base if model.sliding_window else self.local_base)
        both: JsonObject = {
            "rope_theta": model.rope_base,
            **({self.local: local} if self.local else {}),
            "rope_parameters": {
                FULL: {"rope_theta": model.rope_base, **table},
                SLIDING: {"rope_theta": local, "rope_type": "default"},
            },
        }
        return both if len(table) == 1 else {**both, "rope_scaling": table}


def _table_of(read: Reader, kind: str) -> Settings:
    """Return the RoPE settings of a type of layer. Raise ValueError for settings without types of layers."""
    tables = read.config.get("rope_parameters") or {}
    if not isinstance(tables, Mapping) or not {FULL, SLIDING}.issuperset(tables):
        raise read.refusal("rope_parameters", f"an object with {FULL} and {SLIDING}", tables)
    table = tables.get(kind) or {}
    if not isinstance(table, Mapping):
        raise read.refusal(f"rope_parameters.{kind}", "an object", table)
    return table
