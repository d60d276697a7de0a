"""Import the testing build's mudd_core._core; this folder is on PYTHONPATH of the tests and of what they start.

It has the objects of the product and emulated levels, kill points and planted faults (cpp/testing). TESTED_TREE=clang
takes it from build/clang, the tree of another compiler, in place of build/run.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from pathlib import Path
from types import ModuleType

_NAME = "mudd_core._core"
_FOLDER = Path(__file__).resolve().parents[2] / "build" / os.environ.get("TESTED_TREE", "run") / "testing"
MODULE = _FOLDER / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"


class TestingBuild:
    """The finder of one module."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the testing build's file for mudd_core._core."""
        if name != _NAME:
            return None
        spec = ModuleSpec(name, ExtensionFileLoader(name, str(MODULE)), origin=str(MODULE))
        spec.has_location = True
        return spec


sys.meta_path.insert(0, TestingBuild)
