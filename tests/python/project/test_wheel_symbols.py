"""The modules need no symbol that the wheel's tag, manylinux_2_34, does not promise."""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path

import pytest

from places import ROOT

# The newest versions of PEP 600's manylinux_2_34, as auditwheel lists them. CXXABI is a part of libstdc++.
NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13)}
MODULES = [file for name in ("_core", "_h5") for file in (ROOT / "build" / "run").glob(f"{name}.*.so")]


def too_new(symbols: str) -> list[str]:
    """Return the lines of objdump's table whose version is newer than the tag allows."""
    found = []
    for line in symbols.splitlines():
        for library, version in re.findall(r"\b(GLIBC|GLIBCXX|CXXABI)_([\d.]+)\b", line):
            if tuple(map(int, version.split("."))) > NEWEST[library]:
                found.append(line)
    return found


# Later systems give other symbols to other versions, such as strtol of C23; wheels are built on Debian 12.
@pytest.mark.skipif(platform.libc_ver()[1] != "2.36", reason="wheels are built on Debian 12")
@pytest.mark.parametrize("module", MODULES, ids=lambda file: file.name.partition(".")[0])
def test_modules_need_the_symbols_of_the_wheels_tag(module: Path) -> None:
    done = subprocess.run(["objdump", "-T", module], capture_output=True, text=True, check=True)
    assert "GLIBC_2" in done.stdout and not too_new(done.stdout)


def test_a_newer_symbol_is_found() -> None:
    old = " DF *UND* (GLIBCXX_3.4.29) x\n DF *UND* (GLIBC_2.34) y\n"
    new = " DF *UND* (GLIBCXX_3.4.30) _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE"
    assert too_new(old + new) == [new]
