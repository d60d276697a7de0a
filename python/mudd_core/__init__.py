"""mudd_core: trains language models on CPUs. A public name loads its module when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mudd_core import nn as nn
    from mudd_core import ops as ops
    from mudd_core._core import isa as isa
    from mudd_core._core import num_threads as num_threads
    from mudd_core._core import set_num_threads as set_num_threads
    from mudd_core.config import Config as Config
    from mudd_core.config import GPT2Config as GPT2Config
    from mudd_core.config import TransformerPPConfig as TransformerPPConfig
    from mudd_core.config import load_config as load_config
    from mudd_core.model import Model as Model
    from mudd_core.ops import custom as custom
    from mudd_core.tape import Tensor as Tensor
    from mudd_core.trainer import Trainer as Trainer

__version__ = "0.1.0"

# Public name -> module that defines it. A new name needs a line here and one above, for type checkers.
_HOME = {
    "Config": "config",
    "GPT2Config": "config",
    "Model": "model",
    "Tensor": "tape",
    "Trainer": "trainer",
    "TransformerPPConfig": "config",
    "custom": "ops",
    "isa": "_core",
    "load_config": "config",
    "num_threads": "_core",
    "set_num_threads": "_core",
}
_MODULES = ("nn", "ops")


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if name in _MODULES:
        value: Any = importlib.import_module(f"mudd_core.{name}")
    elif home is not None:
        value = getattr(importlib.import_module(f"mudd_core.{home}"), name)
    else:
        raise AttributeError(f"module 'mudd_core' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_MODULES})
