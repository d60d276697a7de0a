"""The package's load_config. load.pyi, which `./run docs` writes, has the types of its keywords."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mudd_core.config import Config
from mudd_core.config.keywords import completed
from mudd_core.config.replaced import Changes, Value
from mudd_core.programs.loaded import loaded_config


@completed
def load_config(path: str | Path, overrides: Sequence[str] | Changes = (), **fields: Value) -> Config:
    """Load and check a config: `load_config("small.py", train_steps=10)`.

    path: a file, a name of mc.list_configs(), a file of an original program (`base_v2.yml`), or `clm`.
    overrides: a dict of fields as for Config.replace; for a file of an original program, a dict of the program's keys.
    A list of command-line arguments such as ["train.steps=10"], in the grammar of the file, works as well.
    fields: fields of the config by section and name, train_steps for train.steps; they are set after the overrides.
    Raise UserError (a ValueError) that names the field, the rule and the nearest valid name.
    """
    return loaded_config(path, overrides, fields)
