"""Commands of the MaxText programs at a tiny size, each in a fresh process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tiny_run import ROOT

NUMBER = r"\d+\.\d{3}"
TINY = {
    "VOCAB_SIZE": "257",
    "BASE_EMB_DIM": "16",
    "BASE_NUM_QUERY_HEADS": "2",
    "BASE_NUM_KV_HEADS": "2",
    "HEAD_DIM": "8",
    "BASE_NUM_DECODER_LAYERS": "2",
    "MAX_TARGET_LENGTH": "33",
}


def run(words: list[str], folder: Path, variables: dict[str, str], code: int = 0) -> list[str]:
    """Return the lines that a fresh process prints for a command, with these M_ variables."""
    surroundings = os.environ | {f"M_{name}": value for name, value in variables.items()}
    command = [sys.executable, str(ROOT / "launch.py"), *words]
    ended = subprocess.run(
        command, cwd=folder, env=surroundings, capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout.splitlines()


def objects(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]
