"""Runs with planted differences, and the `diff` command on them as a user types it."""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from launched import called
from mudd_core import checkpoint
from mudd_core.checkpoint.manifest_reader import read_manifest
from tiny_run import TinyRun

STEPS = 12
WORDS = (
    f"train.steps={STEPS}",
    "train.eval_every=12",
    "train.save_every=4",
    "train.keep_last=0",
    "log.batches=true",
)


def trained(folder: Path, text: Path, name: str, *words: str) -> TinyRun:
    """Train runs/<name> in a folder."""
    (folder / "runs").mkdir(exist_ok=True)
    return TinyRun(folder / "runs" / name, text, (*WORDS, *words)).trained()


def copied(folder: Path, name: str, base: str = "base") -> Path:
    """Copy runs/<base> to runs/<name>; return the copy."""
    copy = folder / "runs" / name
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder / "runs" / base, copy)
    return copy


def diff(folder: Path, *words: str, code: int) -> str:
    """Return the output of `diff`, with single spaces; names are runs/<name>. Require the exit code."""
    names = [f"runs/{word}" if re.fullmatch(r"[a-z_]+", word) else word for word in words]
    done = called(folder, "diff", *names)
    assert done.returncode == code, done.stdout + done.stderr
    text = done.stderr if code == 2 else done.stdout
    assert text.isascii()
    return " ".join(text.split())


def diff_json(folder: Path, *words: str, code: int) -> dict[str, Any]:
    """Return the object of `diff --json`."""
    done = called(folder, "diff", *(f"runs/{word}" for word in words), "--json")
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def change_row(folder: Path, text: Path, step: int, letter: str = "x") -> None:
    """Change one character of the documents in a sequence that runs/base trains on at this step.

    The hash of a document decides whether it is held out, so another letter can move it.
    """
    shown = called(folder, "data", "show", "--config=runs/base/config.json", f"--step={step}").stdout
    inputs = next(line for line in shown.splitlines() if line.startswith("  inputs"))
    piece = max(ast.literal_eval(inputs.split(maxsplit=1)[1]).split("\n"), key=len)
    (file,) = (one for one in text.iterdir() if piece in one.read_text())
    changed = letter + piece[1:]
    file.write_text(file.read_text().replace(piece, changed, 1))


def flip_bit(run: Path, step: int, name: str) -> None:
    """Flip the last bit of a tensor's first element in a checkpoint, which is then saved with right checksums."""
    folder = run / "checkpoints"
    manifest = read_manifest(folder / f"step-{step}")
    found = checkpoint.load_step(folder, step)
    tensors = {key: np.array(tensor) for key, tensor in found.tensors.items()}
    tensors[name].reshape(-1).view(np.uint32)[:1] ^= 1
    shutil.rmtree(folder / f"step-{step}")
    parts = checkpoint.whole_parts(tensors)
    checkpoint.save(
        folder, step, parts, found.state, config_hash=manifest.config_hash, run_id=manifest.run_id, mesh=[]
    )
