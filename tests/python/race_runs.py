"""Commands of `launch.py race` on tiny models, with fixed step times."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from mudd_core.cli.race.recipes import Recipe, read_recipes
from places import ROOT

SMALL = (
    "model.d_model=16",
    "model.n_layer=1",
    "model.n_head=1",
    "train.batch_size=2",
    "train.seq_len=32",
    "data.tokenizer=bytes",
)


def overrides(text: Path) -> list[str]:
    return [*SMALL, f"data.path={text}", f"data.cache_dir={text.parent / 'cache'}", "train.threads=1"]


def race(text: Path, out: Path, recipes: str, *words: str) -> list[str]:
    command = [sys.executable, str(ROOT / "launch.py"), "race", f"--recipes={recipes}", f"--out={out}"]
    return [*command, "--timed-steps=3", *words, *overrides(text)]


def ran(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=300)


def with_times(out: Path, recipes: list[Recipe], *seconds: float) -> None:
    """Write the step times, so that the numbers of steps do not depend on the machine."""
    out.mkdir(parents=True, exist_ok=True)
    times = {
        one.name: {"seconds": each, "digest": one.digest()}
        for one, each in zip(recipes, seconds, strict=True)
    }
    (out / "times.json").write_text(json.dumps({"machine": "a test", "times": times}))


def recipes_of(text: Path, file: str) -> list[Recipe]:
    return read_recipes(file, overrides(text))


def wait_for(file: Path) -> None:
    end = time.monotonic() + 60
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.02)
