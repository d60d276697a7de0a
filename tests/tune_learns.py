"""Check that tuning learns: a base of configs/tiny.py, then signatures for docstrings of the standard library.

The commands are those that a user types; losses are nats per token of 200 held-out answers.
"""

from __future__ import annotations

import ast
import json
import random
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = Path(sysconfig.get_paths()["stdlib"])
TEMPLATE = (
    "{% for t in messages %}{% if t.role == 'user' %}{{ '# ' + t.content + '\\n' }}"
    "{% else %}{{ t.content + '\\n' }}{% endif %}{% endfor %}"
)
HELD = 200
METHODS = {"lora": "optim.lr=2e-3", "full": "optim.lr=2e-3"}  # the rates of so small a model
BASE_STEPS = 1500  # after only 500, the frozen embedding and head are too poor for adapters
NEAR, BELOW = 0.15, 0.5  # nats: of LoRA from full, and of both below the base


def pairs() -> list[dict[str, str]]:
    """Return the first sentence of each docstring, and its function."""
    found = {}
    for file in sorted([*LIBRARY.glob("*.py"), *LIBRARY.glob("[a-z]*/*.py")]):
        if not re.search(r"/(test|idlelib|site-packages|turtledemo)", str(file)):
            found.update((prompt, made) for prompt, made in _of(file) if prompt not in found)
    chosen = [{"prompt": prompt, "completion": made} for prompt, made in sorted(found.items())]
    random.Random(0).shuffle(chosen)
    return chosen


def _of(file: Path) -> Iterator[tuple[str, str]]:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and (text := ast.get_docstring(node)):
            prompt, made = (
                " ".join(text.split("\n\n")[0].split()),
                f"def {node.name}({ast.unparse(node.args)})",
            )
            if 10 < len(prompt) < 120 and len(made) < 100:
                yield prompt, made


def launch(folder: Path, *words: str) -> str:
    """Return the output of a command line in the folder; raise SystemExit with its output if it fails."""
    command = [sys.executable, str(ROOT / "launch.py"), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(
            f"{' '.join(words)}: code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.stdout


def learns(folder: Path, count: int, seeds: int, steps: int, say: Callable[[str], None]) -> bool:
    """Train a base for `steps` steps, tune it by each method and seed on `count` pairs, and print the losses.

    Return True if the targets are met.
    """
    found = pairs()
    for name, some in (("pairs", found[HELD : HELD + count]), ("held", found[:HELD])):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in some))
    (folder / "pairs.jinja").write_text(TEMPLATE)
    begin = time.monotonic()
    launch(folder, "train", "--config=tiny.py", "--workdir=runs/tiny", f"train.steps={steps}")
    say(f"base: configs/tiny.py, {steps:,} steps, {time.monotonic() - begin:.0f} s")
    good = True
    for seed in range(seeds):
        after = {}
        for method, rate in METHODS.items():
            begin = time.monotonic()
            words = [
                "--base=runs/tiny",
                "--data=pairs.jsonl",
                f"--workdir=runs/{method}{seed}",
                f"tune.method={method}",
            ]
            words += ["data.eval_path=held.jsonl", "data.template=pairs.jinja", f"train.seed={seed}", rate]
            text = launch(folder, "tune", *words)
            losses = re.search(r"^held-out loss: (\S+) before, (\S+) after", text, re.M)
            assert losses is not None, text
            before, after[method] = map(float, losses.groups())
            good = good and after[method] < before - BELOW
            say(
                f"seed {seed}, {method} ({rate}): held-out loss {before:.4f} before, {after[method]:.4f} after, "
                f"{time.monotonic() - begin:.0f} s"
            )
        good = good and after["lora"] < after["full"] + NEAR
    return good
