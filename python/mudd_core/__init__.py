"""mudd_core: train language models on CPUs. A public name imports its module on first use."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import os
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudd_core import data as data
    from mudd_core import interop as interop
    from mudd_core import lm_eval as lm_eval
    from mudd_core import nn as nn
    from mudd_core import ops as ops
    from mudd_core._core import isa as isa
    from mudd_core._core import num_threads as num_threads
    from mudd_core._core import set_num_threads as set_num_threads
    from mudd_core.cli.tune.python import tune as tune
    from mudd_core.config import Config as Config
    from mudd_core.config import FamilyConfig as FamilyConfig
    from mudd_core.config import GPT2Config as GPT2Config
    from mudd_core.config import LoraConfig as LoraConfig
    from mudd_core.config import MixtralConfig as MixtralConfig
    from mudd_core.config import MUDDFormerConfig as MUDDFormerConfig
    from mudd_core.config import MupConfig as MupConfig
    from mudd_core.config import TokenFormerConfig as TokenFormerConfig
    from mudd_core.config import TransformerPPConfig as TransformerPPConfig
    from mudd_core.config.families import register_family as register_family
    from mudd_core.config.fields import opt as opt
    from mudd_core.config.load import list_configs as list_configs
    from mudd_core.config.own_optimizers import register_optimizer as register_optimizer
    from mudd_core.engine.model import Model as Model
    from mudd_core.fingerprint.models import first_difference as first_difference
    from mudd_core.graph.scopes import precision as precision
    from mudd_core.graph.tape import Tensor as Tensor
    from mudd_core.interop.load_run import load as load
    from mudd_core.interop.load_run import load_run as load_run
    from mudd_core.models.hidden import Batch as Batch
    from mudd_core.models.hidden import Cache as Cache
    from mudd_core.models.hidden import Hidden as Hidden
    from mudd_core.ops import custom as custom
    from mudd_core.programs.load import load_config as load_config
    from mudd_core.run.build.plan import plan as plan
    from mudd_core.run.loop.trainer import Trainer as Trainer
    from mudd_core.tools.compare.comparison import compare as compare
    from mudd_core.tools.export_weights.exported import export as export
    from mudd_core.tools.teach.python import teach as teach

__version__ = "0.1.0"


def _openmp_library() -> str:
    """Return the OpenMP runtime that `_core` links to: its path in a wheel, else the system's library name."""
    wheel = os.path.join(os.path.dirname(os.path.dirname(__file__)), "mudd_core.libs")
    found = [name for name in os.listdir(wheel) if name.startswith("libgomp")] if os.path.isdir(wheel) else []
    return os.path.join(wheel, found[0]) if found else "libgomp.so.1"


def _load_openmp() -> None:
    """Load OpenMP's runtime with a short wait before idle threads sleep, unless the environment says how to wait.

    By default idle threads spin for milliseconds at every barrier. On idle cores this is not measurably faster than
    spinning for 30 microseconds. On busy cores a spinning thread blocks the thread it waits for. With a load of 14 on
    two cores, a step of configs/tiny.py takes 1.8 s by default and 0.3 s with this setting. The runtime reads the
    environment variable only when it is loaded, so the variable is set only during the load. If OpenMP is already
    loaded, nothing changes. The runtime also reads the number of cores when it is loaded. Threads beyond that number
    hardly spin, which costs 5 to 10 % of a step of 0.2 s.
    """
    if os.environ.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
        return
    launcher: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if "OMPI_COMM_WORLD_LOCAL_SIZE" in os.environ:
        from mudd_core.base.launcher_cores import unbound

        launcher = unbound()
    os.environ["GOMP_SPINCOUNT"] = "2000"
    with contextlib.suppress(OSError), launcher:  # OSError: the build uses another runtime
        ctypes.CDLL(_openmp_library())
    del os.environ["GOMP_SPINCOUNT"]


_load_openmp()

# Public name -> module that defines it. A new name also needs an import under TYPE_CHECKING above.
_HOME = {
    "Batch": "models.hidden",
    "Cache": "models.hidden",
    "Config": "config",
    "FamilyConfig": "config",
    "GPT2Config": "config",
    "Hidden": "models.hidden",
    "LoraConfig": "config",
    "MUDDFormerConfig": "config",
    "MixtralConfig": "config",
    "Model": "engine.model",
    "MupConfig": "config",
    "Tensor": "graph.tape",
    "Trainer": "run.loop.trainer",
    "TokenFormerConfig": "config",
    "TransformerPPConfig": "config",
    "compare": "tools.compare.comparison",
    "custom": "ops",
    "export": "tools.export_weights.exported",
    "first_difference": "fingerprint.models",
    "isa": "_core",
    "list_configs": "config.load",
    "load": "interop.load_run",
    "load_config": "programs.load",
    "load_run": "interop.load_run",
    "num_threads": "_core",
    "opt": "config.fields",
    "plan": "run.build.plan",
    "precision": "graph.scopes",
    "register_family": "config.families",
    "register_optimizer": "config.own_optimizers",
    "set_num_threads": "_core",
    "teach": "tools.teach.python",
    "tune": "cli.tune.python",
}
_MODULES = ("data", "interop", "lm_eval", "nn", "ops")


__all__ = sorted((*_HOME, *_MODULES))


def _require_built() -> None:
    """Raise NotBuiltError if the C++ core is missing, or only built for another Python or machine."""
    if importlib.util.find_spec("mudd_core._core") is not None:
        return
    if others := importlib.import_module("mudd_core.base.packages").other_modules("_core"):
        raise importlib.import_module("mudd_core.base.errors").NotBuiltError(others)
    raise _not_set_up("mudd_core's C++ core is not built")


def _not_set_up(reason: str) -> ImportError:
    """Return the NotBuiltError with the command that builds the core and installs the packages it needs."""
    errors = importlib.import_module("mudd_core.base.errors")
    checkout = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    error: ImportError = errors.NotBuiltError(
        f"{reason}; type ./run setup in {checkout}, then use {checkout}/.venv/bin/python"
    )
    return error


def _imported(module: str) -> ModuleType:
    """Import a module of mudd_core. In a checkout, raise NotBuiltError if a package that it needs is missing."""
    try:
        return importlib.import_module(f"mudd_core.{module}")
    except ModuleNotFoundError as error:
        packages = importlib.import_module("mudd_core.base.packages")
        if error.name in {packages.MODULES.get(name, name) for name in packages.REQUIRED}:
            _require_built()
            if packages.in_checkout():
                raise _not_set_up(f"this Python has no package {error.name}") from None
        if error.name == "mudd_core._core":
            _require_built()
        raise


if not TYPE_CHECKING:  # type checkers read the imports above, so they report a missing name

    def __getattr__(name):
        if name in _MODULES:
            value = _imported(name)
        elif name in _HOME:
            value = getattr(_imported(_HOME[name]), name)
        else:
            if (
                name == "_core"
            ):  # `from mudd_core import _core` looks for an attribute before it imports the module
                _require_built()
            suggest = importlib.import_module("mudd_core.config.suggest")
            others = importlib.import_module("mudd_core.base.other_names").PACKAGE
            hint = f"; {others[name]}" if name in others else suggest.nearest(name, __all__)
            raise AttributeError(f"module 'mudd_core' has no attribute '{name}'{hint}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
