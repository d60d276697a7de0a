"""What a config file registers as it runs, readers of data and schemes of URLs, and how later commands get it."""

from __future__ import annotations

import importlib
import inspect
import shlex
import sys
from collections.abc import Collection
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.config import FAMILIES
from mudd_core.config.load import run_for_effect
from mudd_core.config.own_optimizers import own_optimizers


def registrations() -> set[str]:
    """Names of the readers and fsspec schemes that this process knows beyond those that fsspec ships."""
    found = {f"family {name}" for name, one in FAMILIES.items() if one.given is not None and one.file is None}
    found |= {f"optimizer {one.name}" for one in own_optimizers() if one.file is None}
    if (readers := sys.modules.get("mudd_core.data.pipelines.user_readers")) is not None:
        found |= {f"reader {name}" for name in readers.registered()}
    if (schemes := sys.modules.get("fsspec.registry")) is not None:
        shipped = inspect.getsource(schemes)
        names = {*schemes.registry, *schemes.known_implementations}
        found |= {f"scheme {name}" for name in names if f'"{name}"' not in shipped}
    return found


def replay(file: Path, names: Collection[str]) -> None:
    """Run a config file that the command names for what it registers; the config that it returns is not used."""
    if not set(names) <= registrations():
        run_for_effect(file)


def require_registered(names: Collection[str], file: str) -> None:
    """UserError with what to type, where data need what the config file of the run registered."""
    if any(name.startswith("scheme ") for name in names):
        importlib.import_module("fsspec")  # it registers the schemes of installed packages
    missing = sorted(set(names) - registrations())
    if missing:
        raise UserError(
            f"[config] --config: this run needs what {file} registers ({', '.join(missing)}), and a command runs "
            f"only files that it names; add --config={shlex.quote(file)}"
        )
