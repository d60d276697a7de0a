"""Optional packages: import them on first use, and say how to install a missing one.

The module also finds the shared libraries that an extension module is linked to.
"""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

from mudd_core.base.errors import MissingPackageError

# The packages that every training needs, with the oldest version: `dependencies` in pyproject.toml.
REQUIRED = {"numpy": "1.26", "pyyaml": "6", "tokenizers": "0.20"}
MODULES = {"pyyaml": "yaml"}  # packages whose import name differs
# The extra of pyproject.toml that installs each package.
EXTRAS = {
    "pyarrow": "seeds",
    "array_record": "seeds",
    "zstandard": "seeds",
    "sentencepiece": "seeds",
    "ml_collections": "seeds",
    "jinja2": "chat",
    "datasets": "hub",
    "gcsfs": "cloud",
    "s3fs": "cloud",
    "wandb": "wandb",
    "lm_eval": "eval",
}


_CHECKOUT = Path(__file__).resolve().parents[3]


def in_checkout() -> bool:
    """Return True if this package runs from a checkout of its repository, False if from a wheel."""
    return (_CHECKOUT / "run").is_file() and (_CHECKOUT / "CMakeLists.txt").is_file()


def pages() -> Path:
    """Return the folder of the pages docs/*.md, in the checkout or in the wheel."""
    return _CHECKOUT / "docs" if in_checkout() else Path(__file__).resolve().parents[1] / "docs"


def other_modules(name: str) -> str:
    """Return an error message if the package has this extension module only for other Pythons; empty if it has none."""
    files = sorted(Path(__file__).resolve().parents[1].glob(f"{name}.*.so"))
    if not files:
        return ""
    found = ", ".join(file.name.split(".")[1] for file in files)
    return (
        f"mudd_core.{name}: expected a module for {EXTENSION_SUFFIXES[0].split('.')[1]}, got {found}; install the "
        "wheel for this Python and machine, with the pip of this Python"
    )


def build_with_mpi() -> str:
    """Return the instructions for building the module _mpi, which wheels lack, with the Debian packages it needs."""
    packages = "install Open MPI (Debian: apt install libopenmpi-dev openmpi-bin)"
    if in_checkout():
        return f"{packages} and build again: ./run setup"
    return (
        f"wheels are built without MPI: {packages}, then build from source, either the sdist (pip "
        "install FILE.tar.gz) or a checkout (./run setup)"
    )


def install_command(package: str) -> str:
    """Return the shell command that installs a package for this Python: `./run setup EXTRA` in a checkout's .venv.

    It never installs an extra of mudd_core by name: the package is on no registry, so anyone could register the name.
    """
    script, extra = _CHECKOUT / "run", EXTRAS.get(package)
    if extra is None or not script.is_file() or Path(sys.prefix).resolve() != _CHECKOUT / ".venv":
        return f"{_pip()} install {package}"
    return f"{'./run' if Path.cwd() == _CHECKOUT else shlex.quote(str(script))} setup {extra}"


def _pip() -> str:
    """Return the pip command of the running Python: `pip` if the shell finds the same pip under this name."""
    found = shutil.which("pip")
    if found is not None and Path(found).parent == Path(sys.executable).parent:
        return "pip"
    return f"{shlex.quote(sys.executable)} -m pip"


def needed(module: str, argument: str, purpose: str) -> ModuleType:
    """Import a module and return it. Raise MissingPackageError with the install command if it is not installed.

    argument: the field that needs the module, as `[place] name`. purpose: for messages, as `to read Parquet files`.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        command = install_command(package)
        if error.name is not None and error.name.partition(".")[0] != package:
            raise MissingPackageError(
                f"{argument}: expected the package {package} {purpose}, got one that cannot be imported ({error}); "
                f"install it again: {command}"
            ) from None
        raise MissingPackageError(
            f"{argument}: expected the package {package} {purpose}, got none; install it: {command}"
        ) from None


def linked_library(module: str, name: str) -> Path | None:
    """Return the file of a shared library that a module is linked to; None if it is not found.

    name: a prefix, as `libmpi`.
    """
    try:
        text = subprocess.run(["ldd", module], capture_output=True, text=True, check=False, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(rf"{re.escape(name)}\w*\.so\S* => (/\S+)", text)
    return None if found is None else Path(found[1])
