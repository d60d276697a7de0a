"""Compare predicted with real peak memory of whole runs on random configs: all families, many shapes.

    python bench/bench_memory.py --configs 20 --seed 0

Each config is planned with `launch.py --plan`, then trained for two steps and validated in a separate process. The plan
must predict the peak resident memory of that process.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from shapes import FAMILIES

ROOT = Path(__file__).resolve().parents[1]
MOST_TOKENS = 4096  # tokens per step, so that a run takes seconds and not minutes
RUN = ("train.steps=3", "train.stop_at=2", "train.eval_every=1", "data.tokenizer=bytes", "eval.max_batches=1")
STOPPED = 75  # exit code of a run that train.stop_at ended
# Starts a command and writes its exit code and peak to a file. This is a separate, small process because Linux reports
# the peak of a parent as the peak of its child.
METER = """import os, subprocess, sys
p = subprocess.Popen(sys.argv[2:])
_, status, usage = os.wait4(p.pid, 0)
with open(sys.argv[1], "w") as f:
    f.write(f"{os.waitstatus_to_exitcode(status)} {usage.ru_maxrss}")
"""


def draw(seed: int, index: int, most_tokens: int = MOST_TOKENS) -> list[str]:
    """Return the arguments of launch.py for config `index`: families alternate, everything else is random."""
    rng = random.Random(1000 * seed + index)
    family = FAMILIES[index % len(FAMILIES)]
    width, length = rng.choice((256, 384, 512)), rng.choice((64, 128, 256))
    batch = rng.choice([b for b in (2, 4, 8, 16, 32, 64) if b * length <= most_tokens])
    model = {
        "vocab_size": rng.choice((1024, 4096, 16384)),
        "max_seq_len": length,
        "d_model": width,
        "n_layer": rng.randint(2, 6),
    }
    if family == "mup":
        model |= {"d_base": width, "d_head": 64, "qk_scale": 1 / 64}
    else:
        model["n_head"] = width // 64
    if family == "tokenformer":
        model["slot_num"] = rng.choice((width // 2, 3 * width // 4))
    elif family == "mixtral":
        model |= {"n_kv_head": width // 128, "d_ff": rng.choice((width // 2, width))}
    elif family != "mup":
        model["d_ff"] = rng.choice((2, 3, 4)) * width
    train = {
        "batch_size": batch,
        "seq_len": length,
        "micro_batch_size": rng.choice((0, 1, 2)),
        "recompute": rng.choice(("false", "true")),
        "threads": rng.choice((1, 2)),
    }
    words = [f"--config={family}/tiny.py"]
    words += [f"model.{k}={v}" for k, v in model.items()] + [f"train.{k}={v}" for k, v in train.items()]
    return [*words, f"optim.name={rng.choice(('adamw', 'adamw', 'lion'))}", "optim.lr=1e-4"]


def planned_mib(plan: str) -> float:
    """Return the MiB that the output of --plan predicts."""
    ((number, unit),) = re.findall(r"memory +([\d.,]+) ([MG]iB) at the peak", plan)
    return float(number.replace(",", "")) * {"MiB": 1, "GiB": 1024}[unit]


def measure(words: list[str], text: Path, folder: Path) -> tuple[float, float]:
    """Return (predicted, real) MiB of a run; raise RuntimeError with its output if it fails."""
    return measure_command([*words, *RUN, f"data.path={text}"], folder)


def measure_command(words: list[str], folder: Path) -> tuple[float, float]:
    """Return (predicted, real) MiB for these arguments of launch.py; train.stop_at ends the run, which writes to
    `folder`.
    """
    command = [sys.executable, str(ROOT / "launch.py"), *words]
    command += [f"data.cache_dir={folder / 'cache'}", f"--workdir={folder / 'run'}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}

    def run(*more: str, ends: int = 0) -> tuple[str, float]:
        with tempfile.TemporaryDirectory() as place:
            meter = [sys.executable, "-S", "-c", METER, f"{place}/peak"]
            done = subprocess.run(
                [*meter, *command, *more],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=True,
            )
            code, peak = (Path(place) / "peak").read_text().split()
        if int(code) != ends:
            raise RuntimeError(f"{' '.join(command)}\n{done.stdout}")
        return done.stdout, int(peak) / 1024

    plan, _ = run("--plan")
    _, real = run(ends=STOPPED)
    return planned_mib(plan), real


def main() -> int:
    """Draw, measure and print; return 1 if a prediction is off by more than 10 %."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--configs", type=int, default=20)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument(
        "--text", type=Path, default=ROOT / "python" / "mudd_core", help="folder of text to train on"
    )
    a = p.parse_args()
    worst = 0.0
    print("| config | predicted MiB | real MiB | error |\n|---|---|---|---|")
    for index in range(a.configs):
        words = draw(a.seed, index)
        with tempfile.TemporaryDirectory() as folder:
            predicted, real = measure(words, a.text, Path(folder))
        worst = max(worst, abs(predicted / real - 1))
        name = " ".join(words).replace("--config=", "")
        print(f"| {name} | {predicted:.0f} | {real:.0f} | {predicted / real - 1:+.1%} |", flush=True)
    print(f"\nlargest error {worst:.1%}")
    return int(worst > 0.10)


if __name__ == "__main__":
    sys.exit(main())
