"""Put `tests/` on the import path, and the testing build of mudd_core._core into this process and its children."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BUILD = str(HERE / "testing_build")
sys.path[:0] = [str(HERE), BUILD]
# Container images set it; each process of a test would then compile the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [BUILD, os.environ.get("PYTHONPATH")]))

from testing_build.sitecustomize import MODULE  # noqa: E402

if not MODULE.is_file():
    pytest.exit(f"{MODULE} is missing: ./run test builds it", returncode=2)
