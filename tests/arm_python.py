"""An environment of CPython for 64-bit ARM under qemu-user, with a wheel of mudd_core installed.

`./run wheel --arch=aarch64` makes the root of Debian's arm64 packages and the wheels of the dependencies.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "wheel" / "aarch64"  # as in scripts/aarch64.sh
EMULATOR = "qemu-aarch64 (no CPU)"  # in tables of CPUs
# A model of 1.3 million parameters in under a minute of qemu.
CHECKED = ("train.steps=3", "train.batch_size=2", "train.seq_len=64", "eval.max_batches=1")
MAKE = "./run wheel --arch=aarch64"


def newest_wheel(folder: Path = ROOT / "dist") -> Path:
    """Return the newest wheel for 64-bit ARM in a folder."""
    found = sorted(folder.glob("mudd_core-*_aarch64.whl"), key=lambda file: file.stat().st_mtime)
    if not found:
        raise SystemExit(f"{folder} contains no wheel for aarch64; type: {MAKE}")
    return found[-1]


class ArmPython:
    """A virtual environment whose interpreter is a script that starts qemu, so that it can start itself."""

    def __init__(self, env: Path, folder: Path = FOLDER) -> None:
        """env: the folder of the environment. folder: what `./run wheel --arch=aarch64` has made."""
        self.root, self._packages = folder / "root", folder / "packages"
        if not (self.root / "usr" / "bin" / "python3.11").is_file():
            raise SystemExit(f"{self.root} has no CPython for aarch64; type: {MAKE}")
        self._build = folder / "build"
        self.env = env
        self.python = env / "bin" / "python"

    def program(self, name: str) -> list[str]:
        """Return the command that runs a program of the root under qemu."""
        return ["qemu-aarch64", "-L", str(self.root), str(self.root / "usr" / "bin" / name)]

    def create(self) -> None:
        """Write the environment without packages; replace an earlier one."""
        shutil.rmtree(self.env, ignore_errors=True)
        self.python.parent.mkdir(parents=True)
        home = self.root / "usr" / "bin"
        (self.env / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
        # CPython finds the environment by the name that it is started with: -0.
        qemu = ["qemu-aarch64", "-L", str(self.root), "-0", str(self.python), str(home / "python3.11")]
        self.python.write_text(f'#!/bin/sh\nexec {shlex.join(qemu)} "$@"\n')
        self.python.chmod(0o755)
        (self.python.parent / "python3").symlink_to("python")

    def install(self, *wanted: str) -> None:
        """Install wheels with the root's pip and without network."""
        pip = next((self.root / "usr" / "share" / "python-wheels").glob("pip-*.whl")) / "pip"
        words = ["--disable-pip-version-check", "install", "-q", "--no-index", "--no-compile"]
        self.call([str(pip), *words, f"--find-links={self._packages}", *wanted], ROOT)

    def add_mpi(self) -> None:
        """Build _mpi, which wheels do not contain, with the root's Open MPI, and copy it into the environment."""
        place = self.root / "usr" / "lib" / "aarch64-linux-gnu" / "openmpi"
        options = {
            "MUDD_MPI": "ON",
            "MPI_C_HEADER_DIR": place / "include",
            "MPI_C_LIB_NAMES": "mpi",
            "MPI_mpi_LIBRARY": place / "lib" / "libmpi.so",
            # The linker does not find the libraries of libmpi, which only programs need.
            "CMAKE_EXE_LINKER_FLAGS": "-Wl,--allow-shlib-undefined",
        }
        words = [f"-D{name}={value}" for name, value in options.items()]
        for command in (
            ["cmake", "-S", ROOT, "-B", self._build, *words],
            ["ninja", "-C", self._build, "_mpi"],
        ):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        package = next(self.env.glob("lib/python3*/site-packages/mudd_core"))
        shutil.copy(next(self._build.glob("_mpi.*.so")), package)

    def run(
        self,
        words: Sequence[str],
        where: Path,
        extra: Mapping[str, str] | None = None,
        python: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run the interpreter, or another one, in a folder. extra: variables of the environment."""
        kept = {name: value for name, value in os.environ.items() if not re.match("MUDD_|PIP_|PYTHON", name)}
        environment = {**kept, "OMP_NUM_THREADS": "2", **(extra or {})}
        return subprocess.run(
            [str(python or self.python), *words],
            cwd=where,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def call(
        self,
        words: Sequence[str],
        where: Path,
        extra: Mapping[str, str] | None = None,
        python: Path | None = None,
    ) -> str:
        """Run the interpreter, or another one, which must succeed; return its standard output."""
        done = self.run(words, where, extra, python)
        if done.returncode != 0:
            raise SystemExit(f"{words} exited with code {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout


def check() -> None:
    """Install the newest wheel, train with it under qemu and on x86-64, and compare the final hashes."""
    with tempfile.TemporaryDirectory() as name:
        arm = ArmPython(Path(name) / "env")
        begin = time.monotonic()
        arm.create()
        wheel = newest_wheel()
        arm.install(str(wheel))
        print(f"{wheel.name}: installed by pip in {time.monotonic() - begin:.0f} s of qemu", flush=True)
        for file in sorted(arm.env.glob("lib/python3*/site-packages/mudd_core*/*.so*")):
            print(f"  {file.relative_to(arm.env)}: {file.stat().st_size / 1e6:.2f} MB")
        text = arm.root / "usr" / "lib" / "python3.11" / "json"
        words = ["--config=tiny.py", f"data.path={text}", *CHECKED, "data.cache_dir=cache", "--workdir=run"]
        hashes = []
        ours = {"PYTHONPATH": str(ROOT / "python")}
        for machine, python, extra in (("qemu", arm.python, {}), ("x86-64", Path(sys.executable), ours)):
            begin, folder = time.monotonic(), Path(name) / f"work{len(hashes)}"
            folder.mkdir()
            arm.call(["-m", "mudd_core", *words], folder, extra, python)
            hashes.append(json.loads((folder / "run" / "summary.json").read_text())["final_hash"])
            print(
                f"  {machine}: final hash {hashes[-1][:12]} after {time.monotonic() - begin:.0f} s",
                flush=True,
            )
        if len(set(hashes)) != 1:
            sys.exit("the wheel for aarch64 trains with other bits than x86-64")
        print("tiny.py under qemu ends with the hash of x86-64")


if __name__ == "__main__":
    check()
