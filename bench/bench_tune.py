"""Compare fine-tuning steps of mudd_core and of transformers with PEFT, interleaved, each run in a separate process.

    python bench/bench_tune.py --shape SmolLM2-135M --programs lora full eager compile --out bench/results/tune.md

All programs start from one folder (random weights, adapters with PEFT's initial values), see the same tokens and take
their steps in turn (turns.py). The report has the median step time after the warm-up (with one thread, its CPU time),
tokens per second, and the memory of those steps: the peak resident size (VmHWM, reset after the warm-up) and the
largest Pss after a step. The losses of all steps must agree within 1e-4 (fp32), and the adapters after the last step
within 5e-5 of their norm.

`full` is mudd_core's step over all weights, with other losses. `--counted 0.4` ignores 60 % of the targets in all
programs. `dpo` is a step on pairs of answers, for `trl` and `trl-fast` (baselines/trl_step.py).
Inductor needs minutes for a whole model (`compile`), and less than a minute for its layers (`layers`), which are equal.
It caches compiled code (TORCHINDUCTOR_CACHE_DIR).
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import tune_options
from mudd_core.cli.race.turns import Program, take_turns
from same_step import largest
from shapes import baseline_caps, commit, cpu_levels, cpu_name, usable_cores
from tune_shapes import RANK, TUNE_SHAPES

HERE = Path(__file__).resolve().parent
THEIRS = {
    **dict.fromkeys(("eager", "compile", "layers"), "peft_step.py"),
    **dict.fromkeys(("trl", "trl-fast"), "trl_step.py"),
}
OURS = {"lora": ("--method", "lora"), "full": ("--method", "full"), "dpo": ("--pairs",)}
REFERENCES = ("lora", "dpo")  # the programs with which the others are compared
LOSSES = {"fp32": 1e-4, "bf16": 5e-2}
ADAPTERS = {"fp32": 5e-5, "bf16": 5e-2}
Row = dict[str, Any]


def prepare(folder: Path, a: argparse.Namespace) -> None:
    """Write the files from which all programs start, unless they exist."""
    if (folder / "begun").exists():
        return
    theirs = [str(HERE / "baselines" / "peft_step.py"), "--precision", a.precision]
    for program in (theirs, [str(HERE / "tune_step.py")]):
        words = [*program, "--folder", str(folder), "--shape", a.shape, "--prepare"]
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)


def command(program: str, folder: Path, a: argparse.Namespace) -> list[str]:
    """Return the argument list of one run."""
    page = HERE / "baselines" / THEIRS[program] if program in THEIRS else HERE / "tune_step.py"
    words = [
        sys.executable,
        str(page),
        "--folder",
        str(folder),
        "--shape",
        a.shape,
        "--precision",
        a.precision,
        "--counted",
        str(a.counted),
        "--length",
        str(a.length),
        "--rows",
        str(a.rows),
    ]
    words += ["--threads", str(a.threads), "--steps", str(a.steps), "--warmup", str(a.warmup), "--in-turn"]
    if program in THEIRS:
        words += ["--mode", program, "--save", str(folder / f"after_{program}.npz")]
    else:
        words += [*OURS[program], "--json", "--micro-batch", str(a.micro_batch)]
        words += ["--save", str(folder / f"after_{program}.npz")] if program in REFERENCES else []
        words += ["--recompute"] if a.recompute else []
    return [*shlex.split(a.prefix), *words]


def measure(folder: Path, a: argparse.Namespace) -> list[Row]:
    """Measure all programs and return one row per program."""
    prepare(folder, a)
    caps = {"OMP_NUM_THREADS": str(a.threads)}
    started = [
        Program(command(p, folder, a), {**os.environ, **(baseline_caps() if p in THEIRS else {}), **caps})
        for p in a.programs
    ]
    found = take_turns(started, a.warmup + a.steps)
    rows = []
    for program, row in zip(a.programs, found, strict=True):
        if row is None:
            raise SystemExit(f"[bench_tune] {program} failed: {shlex.join(command(program, folder, a))}")
        rows.append({**row, "program": program})
    return rows


def reference(rows: list[Row]) -> Row | None:
    """Return the row with which the others are compared."""
    return next((row for row in rows if row["program"] in REFERENCES), None)


def differences(rows: list[Row], folder: Path) -> None:
    """Add the differences of losses and adapters from mudd_core to each row of PEFT."""
    ours = reference(rows)
    for row in rows if ours is not None else ():
        if row["program"] in THEIRS:
            pairs = zip(ours["losses"], row["losses"], strict=True)
            row["loss_difference"] = largest(abs(x - y) for x, y in pairs)
            row["adapter_difference"], row["worst_adapter"] = adapter_differences(
                folder / f"after_{ours['program']}.npz", folder / f"after_{row['program']}.npz"
            )


def adapter_differences(ours: Path, theirs: Path) -> tuple[float, float]:
    """Return the relative norm of the difference of all adapters, and the largest relative difference of one tensor."""
    with np.load(ours, allow_pickle=False) as x, np.load(theirs, allow_pickle=False) as y:
        assert set(x.files) == set(y.files), set(x.files) ^ set(y.files)
        pairs = [(np.float64(x[name]), np.float64(y[name])) for name in y.files]
    apart = [float(np.linalg.norm(one - other)) for one, other in pairs]
    norms = [float(np.linalg.norm(other)) for _, other in pairs]
    whole = float(np.linalg.norm(apart) / np.linalg.norm(norms))
    return whole, max(part / norm for part, norm in zip(apart, norms, strict=True))


def table(rows: list[Row]) -> str:
    """Return a Markdown table of speed and memory, with mudd_core's ratios to each row."""
    out = [
        "| program | ISA | s a step | tokens/s | spread | peak RSS MiB | Pss MiB | here: tokens/s | its RSS "
        "| difference of loss, adapters (worst tensor) |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    ours = reference(rows)
    for row in rows:
        ratios = " | "
        if ours is not None and row is not ours:
            speed = ours["tokens_per_second"] / row["tokens_per_second"]
            ratios = f"{speed:.2f} | {ours['peak_rss_mib'] / row['peak_rss_mib']:.0%}"
        far = ""
        if "loss_difference" in row:
            far = (
                f"{row['loss_difference']:.0e}, {row['adapter_difference']:.0e} ({row['worst_adapter']:.0e})"
            )
        seconds = float(np.median(row["seconds"]))
        out.append(
            f"| {row['name']} | {row['isa']} | {seconds:.2f} | {row['tokens_per_second']:.0f} | {row['spread']:.0%} "
            f"| {row['peak_rss_mib']:.0f} | {row['pss_mib']:.0f} | {ratios} | {far} |"
        )
    return "\n".join(out) + "\n"


def heading(rows: list[Row], a: argparse.Namespace) -> str:
    """Return the conditions that results must share to be comparable."""
    shape = tune_options.shape_of(a)
    versions = next((row["versions"] for row in rows if "versions" in row), "")
    counted = "" if a.counted == 1 else f", {a.counted:.0%} of the targets"
    return (
        f"{a.shape}, {shape.B} x {shape.T}, rank {RANK} on all layers, {a.precision}{counted}"
        f"{', recompute' if a.recompute else ''}, micro-batch {a.micro_batch or shape.B}; {cpu_name()}, "
        f"{usable_cores()} cores, {a.threads} threads, flags {' '.join(cpu_levels())}, "
        f"MUDD_MAX_ISA={os.environ.get('MUDD_MAX_ISA', '-')}, commit {commit()}, {time.strftime('%Y-%m-%d')}; "
        f"{versions}; median of {a.steps} steps after {a.warmup}\n"
    )


def parse() -> argparse.Namespace:
    """Parse the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shape", choices=TUNE_SHAPES, default="SmolLM2-135M")
    p.add_argument(
        "--programs",
        nargs="+",
        choices=(*OURS, *THEIRS),
        default=["lora", "full", "eager", "compile"],
    )
    p.add_argument("--precision", choices=tuple(LOSSES), default="fp32")
    p.add_argument("--length", type=int, default=0, help="tokens of a sequence; 0 = of the shape")
    p.add_argument("--rows", type=int, default=0, help="sequences of a step; 0 = of the shape")
    p.add_argument("--counted", type=float, default=1.0, help="fraction of the targets that is used")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--steps", type=int, default=5, help="timed steps of a run")
    p.add_argument("--warmup", type=int, default=1, help="steps before the clock starts")
    p.add_argument("--micro-batch", type=int, default=0, help="our train.micro_batch_size; 0 = all rows")
    p.add_argument("--recompute", action="store_true", help="our train.recompute")
    p.add_argument("--prefix", default="", help='put before each run, such as "taskset -c 0,1"')
    p.add_argument(
        "--folder", type=Path, help="keep base and adapters here, for the next run; default: temporary"
    )
    p.add_argument("--out", type=Path, help="append heading and table to this Markdown file")
    return p.parse_args()


def main() -> int:
    """Measure and print the table; return 1 if losses or adapters disagree."""
    a = parse()
    with tempfile.TemporaryDirectory() as temporary:
        folder = a.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        rows = measure(folder, a)
        differences(rows, folder)
    text = heading(rows, a) + "\n" + table(rows)
    print(text, flush=True)
    if a.out is not None:
        a.out.parent.mkdir(parents=True, exist_ok=True)
        with a.out.open("a") as f:
            f.write(text + "\n")
    far = [
        f"{row['name']}: losses differ by {row['loss_difference']:.1e}, adapters by {row['adapter_difference']:.1e}"
        for row in rows
        if not row.get("loss_difference", 0.0) <= LOSSES[a.precision]
        or not row.get("adapter_difference", 0.0) <= ADAPTERS[a.precision]
    ]
    print("\n".join(far), file=sys.stderr)
    return 1 if far else 0


if __name__ == "__main__":
    sys.exit(main())
