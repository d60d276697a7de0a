"""The config of a run: its sections, and copies with other values."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.config.describe import config_table
from mudd_core.config.replacing import Replacing
from mudd_core.config.sections import explain_assignment
from mudd_core.config.tune import ADAPTERS, last_blocks


@dataclass(frozen=True)
class Config(Replacing):
    """The config of a run. get_config() of a config file returns one; a section may be a dict of its fields."""

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
