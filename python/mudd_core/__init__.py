"""mudd_core: trains language models on CPUs. A public name loads its module when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mudd_core._core import isa as isa
    from mudd_core._core import num_threads as num_threads
    from mudd_core._core import set_num_threads as set_num_threads
    from mudd_core.config import Config as Config
    from mudd_core.config import GPT2Config as GPT2Config
    from mudd_core.config import TransformerPPConfig as TransformerPPConfig
    from mudd_core.config import load_config as load_config

__version__ = "0.1.0"

# Public name -> module that defines it. A new name needs a line here and one above, for type checkers.
_HOME = {
    "Config": "config",
    "GPT2Config": "config",
    "TransformerPPConfig": "config",
    "isa": "_core",
    "load_config": "config",
    "num_threads": "_core",
    "set_num_threads": "_core",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'mudd_core' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"mudd_core.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
