"""Puts `tests/` on the import path, so that tests write `from reference import numpy_ops`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
