"""The built documentation site, for tests; another process builds it. Tests are skipped without the extra `site`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from places import ROOT

BUILD = ROOT / "docs" / "site" / "site_build.py"


def build(folder: Path) -> Path:
    """Build the site in a folder and return its path."""
    for package in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(package, reason=f"no package {package}; ./run site installs it")
    # In another process, because Sphinx and MyST emit deprecation warnings, which are errors here.
    words = [sys.executable, str(BUILD), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    assert re.search(r"index.html, built in \d+ s", done.stdout), done.stdout
    return folder / "site"
