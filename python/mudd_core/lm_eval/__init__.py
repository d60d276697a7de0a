"""Models for lm-evaluation-harness: `mc.lm_eval.Model("runs/small")`. The harness is imported on first use.

`python -m mudd_core.lm_eval` is the harness's own command with `--model mudd_core` and the tasks of TASKS.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from mudd_core.base.packages import needed

if TYPE_CHECKING:
    from mudd_core.lm_eval.model import Model as Model

NAME = "mudd_core"  # of the model class in the harness
TASKS = Path(__file__).with_name("offline")  # the folder with the tasks of mudd_core

__all__ = ["NAME", "TASKS", "Model", "register"]


def register() -> None:
    """Register the model class under NAME. Raise UserError with the install command if the harness is missing.

    The harness finds only registered names: it reads no entry points (version 0.4.13).
    """
    needed("lm_eval", "[evaluate] lm_eval", "to run the tasks")
    registry = importlib.import_module("lm_eval.api.registry").model_registry
    importlib.import_module("lm_eval.models")  # registers the harness's own classes
    if NAME not in registry:
        registry.register(NAME, target=f"{__name__}.model:Model")


if not TYPE_CHECKING:

    def __getattr__(name):
        if name != "Model":
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        register()
        return importlib.import_module(f"{__name__}.model").Model
