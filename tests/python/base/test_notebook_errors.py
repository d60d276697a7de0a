"""Errors in a notebook are one line, dir() and signatures have public names, an unbuilt checkout says ./run setup."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mudd_core as mc
from mudd_core.base import errors
from mudd_core.base.packages import in_checkout
from places import ROOT


@pytest.mark.parametrize(
    "error",
    [
        errors.UserError("[data.path] text"),
        errors.FormatError("a.h5", 3, "torn"),
        errors.SaveError("full"),
        errors.DivergedError("loss"),
        errors.StopRequestedError("stop"),
    ],
)
def test_a_notebook_shows_the_message_alone(error: errors.ShownInOneLine) -> None:
    assert error._render_traceback_() == [f"{type(error).__name__}: {error}"]


def test_ipython_shows_it(tmp_path: Path) -> None:
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    shell.run_cell("import mudd_core as mc")
    shown: list[str] = []
    shell._showtraceback = lambda kind, value, lines: shown.extend(lines)
    shell.run_cell(f"mc.load_run({str(tmp_path / 'nowhere')!r})")
    assert len(shown) == 1 and shown[0].startswith("UserError: [load_run] path: expected a work directory")


def test_the_names_of_modules_and_signatures_are_public() -> None:
    for module in (mc.data, mc.interop):
        assert [*dir(module)] == sorted(module.__all__)
    text = str(inspect.signature(mc.Trainer))
    assert "workdir: 'str | Path | None' = None" in text and "callback" in text
    assert not any(name in text for name in ("assemble", "Assemble", "RunStore", "progress", "fields"))


def error_of(folder: Path, name: str, *modules: str, numpy: bool = True) -> str:
    """Return the error of `mudd_core.<name>` for a copy of the package in a folder, with these files of modules."""
    package = folder / "python" / "mudd_core"
    shutil.copytree(
        ROOT / "python" / "mudd_core", package, ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    for module in modules:
        (package / module).touch()
    installed = Path(inspect.getfile(sys.modules["numpy"])).parents[1]
    code = f"import mudd_core as mc\ntry:\n mc.{name}\nexcept ImportError as e:\n print(type(e).__name__, e)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "PYTHONPATH": os.pathsep.join([str(folder / "python"), *([str(installed)] if numpy else [])]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.stdout


@pytest.mark.parametrize("numpy", [True, False])
def test_an_unbuilt_checkout_names_the_command(numpy: bool, tmp_path: Path) -> None:
    said = error_of(tmp_path, "Model", numpy=numpy)
    assert said.startswith("NotBuiltError mudd_core's C++ core is not built; type ./run setup in ")


@pytest.mark.parametrize("name", ["Model", "isa"])
def test_modules_of_another_machine_are_named(name: str, tmp_path: Path) -> None:
    said = error_of(tmp_path, name, "_core.cpython-311-riscv64-linux-gnu.so")
    assert said.startswith("NotBuiltError mudd_core._core: expected a module for cpython-3")
    assert "got cpython-311-riscv64-linux-gnu; install the wheel for this Python and machine" in said


def test_a_python_without_numpy_names_the_command() -> None:
    code = (
        "import sys; sys.modules['numpy'] = None\nimport mudd_core as mc\n"
        "try:\n mc.load_run\nexcept ImportError as e:\n print(type(e).__name__, e)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    if in_checkout():
        assert done.stdout.startswith("NotBuiltError this Python has no package numpy; type ./run setup in ")
