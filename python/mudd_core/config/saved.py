"""A config as JSON: saved with the run, hashed, and compared with the requested config on resume."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing
from collections.abc import Mapping, Sequence

from mudd_core.base.errors import UserError
from mudd_core.base.types import Json, JsonObject
from mudd_core.config.families import FAMILIES
from mudd_core.config.families.family import KEY as FAMILY
from mudd_core.config.fields import Scalar, replace_path, walk
from mudd_core.config.own_files import hold_back
from mudd_core.config.own_optimizers import GROUPS, names_in
from mudd_core.config.own_optimizers import KEY as OPTIMIZER
from mudd_core.config.pipelines import KEY as READER
from mudd_core.config.pipelines import spec_of
from mudd_core.config.run_config import Config
from mudd_core.config.schema import protocol_of
from mudd_core.config.sections import section_of
from mudd_core.config.train import MICRO_BATCH_SIZE


def to_dict(config: Config) -> JsonObject:
    """Return nested plain values; `model` includes its family.

    A protocol is named explicitly if `auto` meant another one in earlier versions.
    """
    values = dataclasses.asdict(config)
    if spec_of(config.data.pipeline).earlier_protocol:
        values["eval"]["protocol"] = protocol_of(config)
    return values


def to_json(config: Config) -> str:
    """Return readable JSON with fields in declaration order and a final newline."""
    return json.dumps(to_dict(config), indent=2) + "\n"


def with_bound_values(config: Config) -> Config:
    """Return the config that a run stores: its `bound_fields` have their effective values."""
    if MICRO_BATCH_SIZE not in config.bound_fields:
        return config
    bound: Config = replace_path(config, MICRO_BATCH_SIZE, config.train.sequences_per_run())
    return bound


def config_hash(config: Config) -> str:
    """Return the SHA-256 (hex) of the fields that affect training.

    It omits fields that may change on resume, and defaults of fields that are newer than saved runs.
    """
    config = with_bound_values(config)
    kept = {info.path: info.value for info in walk(config) if info.hashed}
    # 1 and 1.0 are equal in a float field
    kinds = {info.path: info.kind for info in walk(config)}
    # The meaning of `auto` has changed, and it does not affect training.
    if spec_of(config.data.pipeline).earlier_protocol:
        kept.pop("eval.protocol", None)
    plain = {path: float(value) if kinds[path] is float else value for path, value in kept.items()}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _build(cls: type, raw: Json, path: str) -> object:
    if not isinstance(raw, Mapping):
        raise UserError(f"[config] {path or 'config'}: expected a JSON object, got {type(raw).__name__}")
    if path == "model" and "family" not in raw:
        raise UserError(f"[config] model.family: expected one of {', '.join(FAMILIES)}, got None")
    if path:  # a field inside a section; sections are not nested
        return section_of(cls, raw, path, saved=True)
    hints = typing.get_type_hints(cls)
    values: dict[str, object] = {}
    for name, value in raw.items():
        nested = name == "model" or (name in hints and dataclasses.is_dataclass(hints[name]))
        values[name] = _build(hints[name], value, name) if nested else value
    return section_of(cls, values, path)


def _hold_back_code(raw: Json) -> None:
    """Prevent the files named in this config from running until a command names them."""
    for key in (FAMILY, OPTIMIZER, GROUPS, READER):
        section, _, name = key.partition(".")
        values = raw.get(section) if isinstance(raw, Mapping) else None
        value = values.get(name) if isinstance(values, Mapping) else None
        if isinstance(value, str):
            for one in names_in(key, value) if key == GROUPS else [value]:
                hold_back(key, one)


def from_dict(raw: Json) -> Config:
    """Return the config of `to_dict`; absent fields have their default, unknown ones raise UserError.

    to_dict now names the protocol of some pipelines; for these, `auto` in a saved config means the protocol of earlier
    versions.
    """
    config = _build(Config, raw, "")
    assert isinstance(config, Config)
    _hold_back_code(raw)
    earlier = spec_of(config.data.pipeline).earlier_protocol
    if earlier and config.eval.protocol == "auto":
        return dataclasses.replace(config, eval=dataclasses.replace(config.eval, protocol=earlier))
    return config


@dataclasses.dataclass(frozen=True)
class Difference:
    """A field with different values in two configs."""

    path: str
    saved: Scalar | None
    asked: Scalar | None
    free_on_resume: bool

    def __str__(self) -> str:
        return f"{self.path}: saved {self.saved!r}, asked {self.asked!r}"


class OtherConfigError(UserError):
    """A config with which a run cannot resume. changes: the fields that must not differ. why: a further reason."""

    def __init__(self, changes: Sequence[Difference], why: str = "") -> None:
        self.changes, self.why = tuple(changes), why
        super().__init__(
            f"[resume] the work directory contains a run with another config:\n{self.fields}\n"
            "Use the saved values, or another work directory for the new run."
        )

    @property
    def fields(self) -> str:
        """The fields that differ, one on each line, and the further reason. Fields of one family only are counted."""
        shown, only = list(self.changes), ""
        if any(change.path == FAMILY for change in shown):
            shown = [change for change in shown if None not in (change.saved, change.asked)]
            count = len(self.changes) - len(shown)
            fields = "field" if count == 1 else "fields"
            only = f"  and {count} {fields} that only one of these families has" if count else ""
        return "\n".join([*(f"  {change}" for change in shown), *filter(None, [only, self.why])])


def differences(saved: Config, asked: Config) -> list[Difference]:
    """Return the fields that differ, in the order of the requested config. Bound fields (with_bound_values) are
    compared by their effective values.
    """
    saved, asked = with_bound_values(saved), with_bound_values(asked)
    old = {info.path: info for info in walk(saved)}
    new = {info.path: info for info in walk(asked)}
    found = []
    for path in [*new, *(name for name in old if name not in new)]:
        left = old[path].value if path in old else None
        right = new[path].value if path in new else None
        if path == "eval.protocol" and right == "auto":  # `auto` means the run's own value
            continue
        if left != right:
            found.append(Difference(path, left, right, (new.get(path) or old[path]).free_on_resume))
    return found


def merge_for_resume(saved: Config, asked: Config) -> tuple[Config, list[Difference]]:
    """Return the saved config with the requested values of free fields, and the list of changed fields.

    Raise OtherConfigError with the list of fields that differ although they affect training.
    """
    changed = differences(saved, asked)
    fixed = [change for change in changed if not change.free_on_resume]
    if fixed:
        raise OtherConfigError(fixed)
    for change in changed:
        if change.asked is not None:
            saved = replace_path(saved, change.path, change.asked)
    return saved, changed
