"""The two machines of tests/aarch64_runs.py: x86-64, and 64-bit ARM under qemu-user."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tiny_run import CONFIG, TIMES

STEPS = ("train.steps=24", "train.save_every=6", "train.eval_every=12")
# Of Open MPI: ranks of root, more ranks than cores, and no copies from the memory of another process.
_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}
ON_ALL = ("--oversubscribe", "--bind-to", "none")  # options of mpirun
# In manifest.json: the seconds of the run, and the checksum of the manifest with them. In README.md of an export: the
# checksum of provenance.json.
_TIMED = re.compile(rb'"(seconds|manifest_crc32c)": [^\n]*|\(SHA-256 [0-9a-f]{64}\)')
_MADE_BY = "provenance.json"  # names the modules, their compiler and the level


class Side:
    """A folder in which one of the two machines runs commands."""

    def __init__(self, folder: Path, text: Path, python: list[str], extra: Mapping[str, str]) -> None:
        """python: the command of the interpreter. extra: variables of the environment."""
        self.folder, self.python = folder, python
        folder.mkdir()
        self.text = text
        kept = {name: value for name, value in os.environ.items() if not re.match("MUDD_|PYTHON", name)}
        self.environment = {**kept, **_MPI, "OMP_NUM_THREADS": "1", **extra}

    def argv(self, *words: str) -> list[str]:
        """Return the command of a `mudd` with these arguments."""
        return [*self.python, "-m", "mudd_core", *words]

    def train(self, run: str, *words: str) -> list[str]:
        """Return the command that trains or continues a run."""
        config = (f"--config={CONFIG}", f"data.path={self.text}", "data.cache_dir=cache", f"--workdir={run}")
        return self.argv(*config, *STEPS, *words)

    def start(self, command: list[str], **extra: str) -> subprocess.Popen[str]:
        """Start a command with its output in a pipe. extra: variables of the environment."""
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env={**self.environment, **extra},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def call(self, command: list[str], code: int = 0, **extra: str) -> str:
        """Run a command that must exit with this code; return its output."""
        process = self.start(command, **extra)
        said, _ = process.communicate()
        if process.returncode != code:
            raise SystemExit(f"{command} exited with code {process.returncode}:\n{said}")
        return said

    def kill_after(self, command: list[str], step: int) -> None:
        """Kill a training after it has printed this step."""
        process = self.start(command)
        assert process.stdout is not None
        found = any(re.match(rf"step +{step}/", line) for line in process.stdout)
        process.kill()
        process.wait()
        if not found:
            raise SystemExit(f"{command} ended with {process.returncode} before step {step}")

    def final(self, run: str) -> tuple[str, str]:
        """Return the final hash of a run, and its metrics without the fields that depend on time."""
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        rows = [{k: v for k, v in json.loads(line).items() if k not in TIMES} for line in lines]
        found = json.loads((self.folder / run / "summary.json").read_text())["final_hash"]
        return found, json.dumps(rows)


def contents(place: Path) -> dict[str, bytes]:
    """Return the bytes of the files of a folder, or of a file, by name, without what depends on time and machine."""
    files = [place] if place.is_file() else sorted(file for file in place.rglob("*") if file.is_file())
    return {
        str(file.relative_to(place.parent)): _TIMED.sub(b"", file.read_bytes())
        for file in files
        if file.name != _MADE_BY
    }
