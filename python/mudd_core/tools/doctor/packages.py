"""The Python packages that every training needs, and the optional ones for some inputs."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mudd_core.base.errors import UserError, in_one_line
from mudd_core.base.packages import EXTRAS, MODULES, REQUIRED, install_command
from mudd_core.base.surroundings import require_address_space
from mudd_core.tools.doctor import Finding, Level


def packages(place: Path) -> Iterator[Finding]:
    """Yield faults of the required packages, then one line about the optional ones."""
    found = {package: _installed(package) for package in (*REQUIRED, *EXTRAS)}
    for package, least in REQUIRED.items():
        text = found[package]
        if not text or _numbers(text) < _numbers(least):
            mend = install_command(f"'{package}>={least}'")
            yield Finding(Level.FAULT, f"{package}: expected {least} or newer, got {text or 'none'}", mend)
        elif reason := _import_fault(MODULES.get(package, package)):
            mend = install_command(f"--force-reinstall '{package}>={least}'")
            yield Finding(Level.FAULT, f"{package} {text} cannot be imported ({reason})", mend)
    there = " ".join(f"{package} {text}" for package, text in found.items() if text)
    missing = [package for package in EXTRAS if not found[package]]
    absent = f"; not installed, for some inputs only: {', '.join(missing)}" if missing else ""
    commands = dict.fromkeys(install_command(package) for package in missing)
    yield Finding(Level.OK, there + absent, "; ".join(commands))


def _installed(package: str) -> str:
    """Return the version of a package; empty if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _import_fault(module: str) -> str:
    """Return the reason why a module cannot be imported; empty if it can."""
    try:
        require_address_space()  # with less, NumPy's BLAS ends this process; the check of memory reports the limit
    except UserError:
        return ""
    try:
        importlib.import_module(module)
    except Exception as error:
        return in_one_line(error)[:200] or type(error).__name__
    return ""


def _numbers(text: str) -> list[int]:
    """Return the first three numbers of a version."""
    return [int(part) for part in re.findall(r"\d+", text)[:3]]
