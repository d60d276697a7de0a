"""Commands of launch.py as a user types them, each in a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from places import ROOT


def launched(
    folder: Path, *words: str, typed: str = "", timeout: float = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `launch.py` in a folder with one thread. typed: standard input. environment: variables added to ours."""
    packages = os.pathsep.join(filter(None, (str(ROOT / "python"), os.environ.get("PYTHONPATH", ""))))
    return subprocess.run(
        [sys.executable, str(ROOT / "launch.py"), *words],
        cwd=folder,
        input=typed,
        env={**os.environ, "PYTHONPATH": packages, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
