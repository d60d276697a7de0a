"""Print hashes of the weights after some steps, by instruction set level.

The programs are mudd_core, and PyTorch with ATEN_CPU_CAPABILITY.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shapes import FAMILIES, SHAPES, Shape, commit, cpu_name, usable_cores
from workload import BETAS, EPS, LR, batch_tokens, parameter_shapes, random_weights

PROGRAMS = ("ours", "torch")


class Run(NamedTuple):
    """The result of a process: the hash of its weights, the name of its level, and the median step time in seconds."""

    digest: str
    level: str
    seconds: float


LEVELS = ("portable", "avx2", "avx512", "neon", "highest")


def environment(program: str, level: str) -> dict[str, str]:
    """Return the environment that caps a program at a level."""
    name = {"ours": "MUDD_MAX_ISA", "torch": "ATEN_CPU_CAPABILITY"}[program]
    free = {k: v for k, v in os.environ.items() if k not in ("MUDD_MAX_ISA", "ATEN_CPU_CAPABILITY")}
    if level == "highest":
        return free
    return {**free, name: "default" if (program, level) == ("torch", "portable") else level}


def own_levels() -> list[str]:
    """Return two levels that differ on this CPU."""
    from mudd_core import _core

    detected = _core.detected_isa()
    return ["portable", detected] if detected in ("avx2", "neon") else ["avx2", "highest"]


def verdict(found: Mapping[str, str]) -> str:
    """Return a sentence that says whether a program's hashes agree across levels."""
    if len(found) < 2:
        return "one level, nothing is compared"
    if not all(re.fullmatch("[0-9a-f]{64}", digest) for digest in found.values()):
        return "**failed**"
    return "equal" if len(set(found.values())) == 1 else "**differ**"


def hash_of(arrays: Mapping[str, NDArray[np.float32]]) -> str:
    """Return the SHA-256 over all weights in name order."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def median_seconds(times: list[float]) -> float:
    """Return the median of all steps except the first; for a single step, its time."""
    return statistics.median(times[1:] or times)


def of_ours(s: Shape, family: str, a: argparse.Namespace) -> Run:
    """Train with mudd_core; return the result."""
    import mudd_core as mc
    from bench_step import default_micro_batch, make_engine

    mc.set_num_threads(a.threads)
    engine = make_engine(s, family, default_micro_batch(s), None)
    times: list[float] = []
    for step in range(a.steps):
        tokens = batch_tokens(s, step).astype(np.int32)
        parts = {"inputs": tokens[:, :-1], "targets": tokens[:, 1:]}
        begin = time.perf_counter()
        engine.train_step(step, LR, {name: np.ascontiguousarray(part) for name, part in parts.items()})
        times.append(time.perf_counter() - begin)
    return Run(hash_of(dict(engine.model.parameters)), str(mc.isa()), median_seconds(times))


def of_torch(s: Shape, family: str, a: argparse.Namespace) -> Run:
    """Train in eager mode as baselines/torch_step.py does; return the result."""
    sys.path.insert(0, str(Path(__file__).parent / "baselines"))
    import torch
    import torch_step

    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    model, load = torch_step.make(s, family)
    load(model, random_weights(parameter_shapes(s, family)))
    optimizer = torch.optim.AdamW(torch_step.decayed(model), lr=LR, betas=BETAS, eps=EPS, fused=True)
    times: list[float] = []
    for step in range(a.steps):
        tokens = torch.from_numpy(batch_tokens(s, step))
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        model(tokens[:, :-1], tokens[:, 1:]).backward()
        torch_step.clip(model)
        optimizer.step()
        times.append(time.perf_counter() - begin)
    weights = {name: p.detach().numpy() for name, p in model.named_parameters()}
    return Run(hash_of(weights), str(torch.backends.cpu.get_cpu_capability()), median_seconds(times))


def in_process(program: str, family: str, level: str, a: argparse.Namespace) -> Run:
    """Return the result of another process at this level, with the error in place of the hash if it failed."""
    words = [f"--{name.replace('_', '-')}={getattr(a, name)}" for name in ("shape", "steps", "threads")]
    words += [f"--{n.replace('_', '-')}={getattr(a, n)}" for n in ("seq_len", "batch") if getattr(a, n)]
    command = [sys.executable, __file__, *words, "--families", family, "--programs", program, "--child"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, env=environment(program, level), cwd=folder, capture_output=True, text=True, check=False
        )
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Run(said, level, math.nan)
    found: tuple[str, str, float] = json.loads(done.stdout.splitlines()[-1])
    return Run(found[0], found[1].lower(), found[2])


def rows(a: argparse.Namespace) -> Iterable[tuple[str, str, list[Run]]]:
    """Yield family, program and the results by level."""
    for family in a.families:
        for program in a.programs:
            yield family, program, [in_process(program, family, level, a) for level in a.levels]


def parse() -> argparse.Namespace:
    """Parse the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--families", choices=FAMILIES, nargs="+", default=list(FAMILIES))
    p.add_argument("--programs", choices=PROGRAMS, nargs="+", default=list(PROGRAMS))
    p.add_argument("--levels", choices=LEVELS, nargs="+", help="default: two that this CPU has")
    p.add_argument("--shape", choices=SHAPES, default="9M")
    p.add_argument("--seq-len", type=int, help="length of a sequence in place of the shape's")
    p.add_argument("--batch", type=int, help="sequences in a step in place of the shape's")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--threads", type=int, default=usable_cores())
    p.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked = p.parse_args()
    if not asked.child:
        asked.levels = asked.levels or own_levels()
    return asked


def main() -> int:
    """Print a table of hashes by level."""
    a = parse()
    shape = SHAPES[a.shape]
    s = replace(shape, T=a.seq_len or shape.T, B=a.batch or shape.B)
    if a.child:
        of = {"ours": of_ours, "torch": of_torch}[a.programs[0]]
        print(json.dumps(of(s, a.families[0], a)))
        return 0
    print(
        f"{cpu_name()}, commit {commit()}, {a.threads} threads: {s.name}, T {s.T}, batch {s.B}, {a.steps} steps\n\n"
        "| family | program | hashes by level | | seconds a step | first / last |\n" + "| --- " * 6 + "|"
    )
    unequal = 0
    for family, program, runs in rows(a):
        said = verdict({run.level: run.digest for run in runs})
        unequal += program == "ours" and said != "equal"
        hashes = ", ".join(f"{run.level} `{run.digest[:12]}`" for run in runs)
        times = ", ".join(f"{run.seconds:.3g}" for run in runs)
        factor = runs[0].seconds / runs[-1].seconds
        print(f"| {family} | {program} | {hashes} | {said} | {times} | {factor:.2f} |", flush=True)
    return 1 if unequal else 0


if __name__ == "__main__":
    sys.exit(main())
