"""The config of a run: its sections, and copies with other values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import overload

from mudd_core.base.errors import UserError
from mudd_core.config.describe import config_table
from mudd_core.config.replaced import Changes, Value, with_changes
from mudd_core.config.schema import Sections
from mudd_core.config.sections import explain_assignment
from mudd_core.config.tune import ADAPTERS, last_blocks


@dataclass(frozen=True)
class Config(Sections):
    """The config of a run. get_config() of a config file returns one; a section may be a dict of its fields."""

    @overload
    def replace(self, field: str, value: Value) -> Config: ...
    @overload
    def replace(self, field: Changes) -> Config: ...
    def replace(self, field: str | Changes, value: Value | None = None) -> Config:
        """Return a checked copy with other values: `replace("train.steps", 20)` or `replace({"train.steps": 20, ...})`.

        A section may be a dict of its fields or its dataclass; a model with a "family" is a new one. Raise UserError (a
        ValueError) with the field, the value and the nearest existing field.
        """
        if isinstance(field, Mapping):
            return with_changes(self, field)
        if not isinstance(field, str):
            raise TypeError(
                f"[config] replace: expected a field or a dict of fields, got a {type(field).__name__}; type "
                'config.replace({"train.steps": 20})'
            )
        if value is None:
            raise UserError(
                f"[config] replace: expected a value for '{field}', got None; type "
                f'config.replace("{field}", VALUE) or config.replace({{"{field}": VALUE}})'
            )
        return with_changes(self, {field: value})

    def _repr_html_(self) -> str:
        return config_table(self, Config(model=type(self.model)()), f"Config '{self.name}'")

    @property
    def trained(self) -> str:
        """Patterns of the parameters that train (train.trainable, tune.method); empty: all."""
        method = self.tune.method
        if method == "lora":
            return ADAPTERS
        if count := last_blocks(method):
            layers = self.model.n_layer
            return ",".join(f"blocks.{layer}.*" for layer in range(layers - count, layers))
        return self.train.trainable


explain_assignment(Config, "")
