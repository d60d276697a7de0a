"""The shared libraries that a module of this package is linked to."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path


def linked_library(module: str, name: str) -> Path | None:
    """Return the file of a library, None where the module has it inside. name: its beginning, as `libmpi`."""
    try:
        text = subprocess.run(["ldd", module], capture_output=True, text=True, check=False, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(rf"{re.escape(name)}\w*\.so\S* => (/\S+)", text)
    return None if found is None else Path(found[1])
