"""Config.replace. replacing.pyi, which `./run docs` writes, has the types of its keywords."""

from __future__ import annotations

from typing import Self

from mudd_core.config.keywords import completed, replaced
from mudd_core.config.replaced import Changes, Value
from mudd_core.config.schema import Sections


class Replacing(Sections):
    """Sections that are copied with other values."""

    @completed
    def replace(
        self, field: str | Changes | None = None, value: Value | None = None, **fields: Value
    ) -> Self:
        """Return a checked copy with other values: `replace(train_steps=20)` or `replace("train.steps", 20)`.

        field: a field, or a dict of fields: {"train.steps": 20, ...}. A section may be a dict of its fields or its
        dataclass; a model with a "family" is a new one. fields: as for mc.load_config, train_steps for train.steps.
        Raise UserError (a ValueError) with the field, the value and the nearest existing field.
        """
        return replaced(self, field, value, fields)
