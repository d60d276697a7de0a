"""Type stubs of the extension modules, generated from pybind11's signatures.

`python tests/stubs.py` writes python/mudd_core/_core.pyi, _h5.pyi, _mpi.pyi and ops/__init__.pyi (`./run stubs`);
tests/python/project/test_stubs.py fails while the committed files differ.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import op_stubs

PACKAGE = Path(__file__).resolve().parents[1] / "python" / "mudd_core"
# _mpi only if it is built.
MODULES = ("_core", "_h5", *(["_mpi"] if importlib.util.find_spec("mudd_core._mpi") else []))
# Type names of pybind11 and their replacements for a strict type checker. Newer pybind11 writes a union for "anything
# that can be an int". NumPy arrays are buffers for the checker only since Python 3.12. std::string also accepts bytes.
PLAINER = {
    r"typing\.SupportsInt \| typing\.SupportsIndex": "int",
    r"typing\.SupportsFloat \| typing\.SupportsIndex": "float",
    r"typing_extensions\.Buffer|collections\.abc\.Buffer": "typing.Any",
    r"import typing_extensions\n": "",
    r"(?<=[ \[])(list|tuple|dict)(?=[:,)\]|]| =|$)": r"\1[typing.Any, ...]",
    r"(list)\[typing\.Any, \.\.\.\]": r"\1[typing.Any]",
    r"(dict)\[typing\.Any, \.\.\.\]": r"\1[str, typing.Any]",
    r"\*args\)": "*args: typing.Any)",
    r"manifest: str\b": "manifest: str | bytes",
}


def generate() -> dict[str, str]:
    """Return the text of each module's stub by file name."""
    with tempfile.TemporaryDirectory() as folder:
        modules = [f"mudd_core.{name}" for name in MODULES]
        command = [sys.executable, "-m", "pybind11_stubgen", *modules, "--exit-code", "-o", folder]
        # Without PYTHONPATH, so that the stubs describe the product and not the testing build.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode != 0:
            raise RuntimeError(f"pybind11-stubgen refuses a signature:\n{done.stderr}")
        stubs = {f"{m}.pyi": plainer((Path(folder) / "mudd_core" / f"{m}.pyi").read_text()) for m in MODULES}
        return stubs | {"ops/__init__.pyi": op_stubs.generate()}


def plainer(text: str) -> str:
    """Return the stub with the spellings of PLAINER."""
    for pattern, spelling in PLAINER.items():
        text = re.sub(pattern, spelling, text, flags=re.MULTILINE)
    return text


if __name__ == "__main__":
    for name, text in generate().items():
        (PACKAGE / name).write_text(text)
        print(f"wrote {PACKAGE / name}")
