"""The wheel: built from the build tree of `./run` without compiling, and installed without access to a checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import yaml

import mudd_core
from places import ROOT

TREE = ROOT / "build" / "run"
# Build outputs and caches, which a checkout does not contain.
NOT_SOURCES = {"build", ".git", ".venv", "runs", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"}
OVERRIDES = (
    "data.tokenizer=bytes",
    "model.d_model=32",
    "model.n_layer=1",
    "model.n_head=2",
    "model.n_kv_head=2",
    "model.d_ff=64",
    "train.steps=3",
    "train.batch_size=2",
    "train.seq_len=32",
    "train.threads=1",
    "optim.warmup_steps=1",
    "eval.max_batches=1",
    "sample.max_tokens=4",
)


def pip(*words: str) -> None:
    """Run pip without network; the assertion shows its output."""
    environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def build_wheel(source: Path, out: Path, **settings: str) -> Path:
    """Build the wheel of a source tree with the settings `name=value` of scikit-build-core."""
    options = [f"--config-settings={name}={value}" for name, value in settings.items()]
    pip("wheel", str(source), "--no-build-isolation", "--no-deps", f"--wheel-dir={out}", "-v", *options)
    (wheel,) = out.glob("mudd_core-*.whl")
    return wheel


def snapshot(root: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of every file that a build must not change."""

    def files(folder: Path) -> Iterator[Path]:
        for entry in sorted(folder.iterdir()):
            if entry.name in NOT_SOURCES:
                continue
            if entry.is_dir() and not entry.is_symlink():
                yield from files(entry)
            else:
                yield entry

    stats = ((path, path.lstat()) for path in files(root))
    return {str(path.relative_to(root)): (stat.st_size, stat.st_mtime_ns) for path, stat in stats}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of this checkout, built from the objects of its build tree."""
    before = snapshot(ROOT / "python").keys()
    settings = {
        "build-dir": str(TREE),
        "cmake.define.MUDD_TESTS": "ON",
        "build.targets": "modules",
    }
    built = build_wheel(ROOT, tmp_path_factory.mktemp("wheel"), **settings)
    assert snapshot(ROOT / "python").keys() == before
    return built


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with only the wheel and its three dependencies (as links)."""
    folder = tmp_path_factory.mktemp("bare") / "env"
    venv.create(folder, symlinks=True, with_pip=False)
    pip(f"--python={folder / 'bin' / 'python'}", "install", "--no-deps", str(wheel))
    (packages,) = folder.glob("lib/python*/site-packages")
    for module, names in ((np, "numpy*"), (tokenizers, "tokenizers*"), (yaml, "*[yY][aA][mM][lL]*")):
        home = Path(module.__path__[0])
        for part in home.parent.glob(names):  # numpy.libs is next to numpy
            (packages / part.name).symlink_to(part)
    return folder


def test_the_wheel_holds_modules_stubs_and_configs(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    modules = sorted(name.split(".")[0] for name in names if name.endswith(".so"))
    built = sorted(f"mudd_core/{file.name.split('.')[0]}" for file in TREE.glob("_*.so"))
    assert modules == built and {"mudd_core/_core", "mudd_core/_h5"} <= set(modules)
    assert {"mudd_core/_core.pyi", "mudd_core/_h5.pyi", "mudd_core/py.typed"} <= set(names)
    kinds = (".py", ".yaml", ".yml", ".json")
    configs = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "configs").rglob("*.*") if path.suffix in kinds
    }
    assert configs == {
        name.removeprefix("mudd_core/") for name in names if name.startswith("mudd_core/configs/")
    }
    sources = {path.relative_to(ROOT / "python").as_posix() for path in (ROOT / "python").rglob("*.py")}
    assert sources <= set(names)
    assert not [name for name in names if not name.startswith(("mudd_core/", "mudd_core-"))]


def test_no_target_is_built_into_the_source_tree() -> None:
    targets = [
        line.split(":")[0] for line in (TREE / "build.ninja").read_text().splitlines() if line[:6] == "build "
    ]
    assert len(targets) > 100
    assert not [target for target in targets if "python/mudd_core" in target and "_core." in target]


def test_the_installed_package_trains_samples_and_reads_its_cache(
    bare: Path, tiny_text: Path, tmp_path: Path
) -> None:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP"))
    }

    def output(program: str, *words: str) -> str:
        done = subprocess.run(
            [str(bare / "bin" / program), *words],
            cwd=tmp_path,
            env={**environment, "VIRTUAL_ENV": str(bare)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    data = (f"data.path={tiny_text}", f"data.cache_dir={tmp_path / 'cache'}")
    run = ("--config=tiny.py", "--workdir=run", *data, *OVERRIDES)
    trained = output("mudd", "train", *run)
    assert "step 3/3" in trained and "\n  mudd sample " in trained
    output("mudd", "sample", *run, "--prompt", "mu")
    output("mudd", "validate", *run)
    report = output("mudd", "data", *run)
    assert str(tmp_path / "cache") in report
    assert "best validation" in output("mudd", "report", "run") and "example: mudd" in output(
        "mudd", "--help"
    )
    output("mudd", "report", "run", "--html")
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>") and "Content-Security-Policy" in page
    checked = output("mudd", "doctor")
    assert "training would work here: 0 faults" in checked and "./run" not in checked
    home = output(
        "python", "-c", "import mudd_core._core as c, mudd_core._h5 as h; print(c.__file__, h.__file__)"
    )
    assert all(path.startswith(str(bare)) for path in home.split())


def test_a_read_only_checkout_builds(tmp_path: Path) -> None:
    """Build with pip's default settings, without ./run; the target `help` compiles nothing."""
    checkout = tmp_path / "checkout"
    ignored = shutil.ignore_patterns(*NOT_SOURCES, "*.so")
    shutil.copytree(ROOT, checkout, ignore=ignored, symlinks=True)
    stale = checkout / "python" / "mudd_core" / "_core.cpython-39-x86_64-linux-gnu.so"
    stale.write_bytes(b"a module that an earlier version left here")
    before = snapshot(checkout)
    folders = [checkout, *(path for path in checkout.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        settings = {"cmake.define.MUDD_PYTHON": "OFF", "build.targets": "help"}
        built = build_wheel(checkout, tmp_path / "out", **settings)
    finally:
        for folder in folders:
            folder.chmod(0o755)
    names = zipfile.ZipFile(built).namelist()
    assert "mudd_core/__init__.py" in names and not [name for name in names if name.endswith(".so")]
    assert snapshot(checkout) == before
    assert not (checkout / "build").exists()


MAPPED = """
import mudd_core as mc
mc.num_threads()
print(*sorted({line.split()[-1] for line in open("/proc/self/maps") if "libgomp" in line}))
"""


def test_the_openmp_runtime_inside_a_wheel_is_loaded_by_its_path(bare: Path, tmp_path: Path) -> None:
    """Imitate auditwheel: put a copy of the library next to the package."""
    (package,) = bare.glob("lib/python*/site-packages/mudd_core")
    system = next(
        line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libgomp.so" in line
    )
    grafted = package.parent / "mudd_core.libs" / "libgomp-0a1b2c.so.1.0.0"
    grafted.parent.mkdir()
    environment = {
        name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "GOMP", "OMP"))
    }
    try:
        shutil.copy(system, grafted)
        done = subprocess.run(
            [str(bare / "bin" / "python"), "-c", MAPPED],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        shutil.rmtree(grafted.parent)
    assert str(grafted) in done.stdout.split()


def test_one_version_string(wheel: Path) -> None:
    version = mudd_core.__version__
    assert wheel.name.split("-")[1] == version
    cache = (TREE / "CMakeCache.txt").read_text()
    assert f"CMAKE_PROJECT_VERSION:STATIC={version}\n" in cache
    assert version not in (ROOT / "pyproject.toml").read_text()


def test_pages_that_messages_name_are_in_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    found = {
        page
        for file in (ROOT / "python" / "mudd_core").rglob("*.py")
        for page in re.findall(r"docs/[\w/-]+\.md", file.read_text())
    }
    assert len(found) > 5 and {f"mudd_core/{page}" for page in found} <= names


def test_an_installed_package_says_how_to_get_open_mpi_and_where_its_pages_are(
    bare: Path, tmp_path: Path
) -> None:
    (package,) = bare.glob("lib/python*/site-packages/mudd_core")
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}

    def output(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(bare / "bin" / "mudd"), *words]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    assert str(package / "docs") in output("--help").stdout
    module = next(package.glob("_mpi.*.so"), None)
    hidden = None if module is None else module.rename(module.with_suffix(".hidden"))
    try:
        done = output("--config=tiny.py", "--ranks=2", "--workdir=run")
    finally:
        if module is not None and hidden is not None:
            hidden.rename(module)
    assert (
        done.returncode == 2
        and "wheels are built without MPI" in done.stderr
        and "FILE.tar.gz" in done.stderr
    ), done.stderr
    assert not (tmp_path / "run").exists()
