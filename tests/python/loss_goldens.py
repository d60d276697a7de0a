"""Twenty updates of every family in fp32 and bf16: losses, gradient norms, the final hash, at every level.

An emulated level has the fp32 kernels of this CPU and is slow in bf16, so its test runs only the first bf16 updates.

`python tests/python/loss_goldens.py` prints the lines of this process's level. With `--write` it rewrites the files in
tests/goldens/losses: fp32/<family>.txt, which is equal for every level, and bf16/<unit>.txt. A change of any bit needs
new files and a line in CHANGELOG.md.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import mudd_core as mc
from mudd_core.config import Config, DataConfig, EvalConfig, OptimConfig, TrainConfig
from places import HELPERS, ROOT, TESTS

FOLDER = ROOT / "tests" / "goldens" / "losses"
FAMILIES = (
    "llama_gqa",
    "gpt2",
    "mudd",
    "tokenformer",
    "mup",
    "mixtral",
    "mudd_experts",
)  # of small_models.CASES
STEPS = 20
# The environment of each level that every CPU can run. Emulations have the same bits as the hardware unit.
EVERYWHERE = {
    "portable": {"MUDD_MAX_ISA": "portable"},
    "emu_avx512_bf16": {"MUDD_EMULATE": "emu_avx512_bf16"},
    "emu_amx_bf16": {"MUDD_EMULATE": "emu_amx_bf16"},
}
# The updates in the test of an emulation: each loss and norm depends on the bits of all updates before it.
EMULATED_STEPS = 4
# Levels that only some CPUs have.
OF_CPU = ("avx2", "avx512", "avx512_bf16", "amx_bf16", "neon")


def levels() -> Mapping[str, Mapping[str, str]]:
    """Return the levels of this CPU and the emulated ones, with the environment of each."""
    from mudd_core import _core

    names = _core.isa_levels()
    had = names[: names.index(_core.detected_isa()) + 1]
    return EVERYWHERE | {level: {"MUDD_MAX_ISA": level} for level in OF_CPU if level in had}


def unit_of(level: str) -> str:
    """Return the unit whose bf16 bits a level has."""
    name = level.removeprefix("emu_")
    return name if name.endswith("_bf16") else "none"


def files(level: str) -> dict[Path, list[str]]:
    """Return the files with the lines of a level, each with the names of its configs."""
    found = {FOLDER / "fp32" / f"{family}.txt": [f"{family}-fp32"] for family in FAMILIES}
    return found | {FOLDER / "bf16" / f"{unit_of(level)}.txt": [f"{family}-bf16" for family in FAMILIES]}


def config_of(family: str, precision: str, cache: str) -> Config:
    """Return the config of a run; `cache` is a folder for the token cache."""
    from small_models import CASES  # imports torch

    return Config(
        name=f"{family}-{precision}",
        model=dataclasses.replace(CASES[family][0], vocab_size=0, max_seq_len=24),
        data=DataConfig(path=str(FOLDER / "text"), tokenizer="bytes", cache_dir=cache),
        train=TrainConfig(
            steps=STEPS,
            batch_size=4,
            seq_len=24,
            seed=11,
            logical_shards=4,
            micro_batch_size=2,
            threads=1,
            precision=precision,
        ),
        optim=OptimConfig(lr=3e-3, warmup_steps=3),
        eval=EvalConfig(max_batches=1),
    )


def lines_of(config: Config, first: int = 0) -> Iterator[str]:
    """Yield the lines of a run. first: only this many updates, without the final hash (0: all lines)."""
    with mc.Trainer(config) as trainer:
        for _ in range(first or STEPS):
            record = trainer.step()
            yield f"{config.name} {record.step} {record.loss.hex()} {record.grad_norm.hex()}"
        if not first:
            yield f"{config.name} hash {trainer.final_hash()}"


def lines(cache: str, first: int = 0) -> Iterator[str]:
    """Yield the lines of the active level; `cache` is a folder for the token cache.

    first: only this many updates, in bf16 and without the final hash (0: all lines).
    """
    for family in FAMILIES:
        for precision in ("bf16",) if first else ("fp32", "bf16"):
            yield from lines_of(config_of(family, precision, cache), first)


def lines_at(level: str, cache: str, tree: str = "", first: int = 0) -> dict[Path, list[str]]:
    """Return the lines of a level by file, from a separate process, because the level is chosen once per process.

    tree: use the modules of build/<tree>, from another compiler. first: as in `lines`.
    """
    paths = [str(TESTS / "testing_build"), str(ROOT / "python"), str(HELPERS), str(TESTS)]
    paths += [os.environ[name] for name in ("PYTHONPATH",) if name in os.environ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MUDD_")}
    environment |= {"PYTHONPATH": os.pathsep.join(paths), **levels()[level]}
    if tree:
        environment["TESTED_TREE"] = tree
    process = subprocess.run(
        [sys.executable, __file__, cache, str(first)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        raise RuntimeError(f"{level}: exit {process.returncode}\n{process.stderr}")
    made = process.stdout.splitlines()
    return {
        file: [line for line in made if line.split()[0] in configs] for file, configs in files(level).items()
    }


def read(file: Path) -> list[str]:
    """Return the committed lines of a file, without its head."""
    return [line for line in file.read_text().splitlines() if not line.startswith("#")]


def write(cache: str) -> None:
    """Rewrite the files. Raise RuntimeError if two levels that share a file differ."""
    compiler = subprocess.run(["c++", "--version"], capture_output=True, text=True, check=True).stdout
    head = (
        f"# maker: python tests/python/loss_goldens.py --write\n# date: {time.strftime('%Y-%m-%d')}\n"
        f"# compiler: {compiler.splitlines()[0]}\n# config-precision, step, loss, gradient norm\n"
    )
    made: dict[Path, list[str]] = {}
    for level in levels():
        for file, lines in lines_at(level, cache).items():
            if made.setdefault(file, lines) != lines:
                raise RuntimeError(f"{level}: other bits than an earlier level in {file.name}")
    for file, lines in made.items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(head + "\n".join(lines) + "\n")


def main() -> None:
    """Print this level's lines, or write all files."""
    with TemporaryDirectory() as folder:
        if sys.argv[1:] == ["--write"]:
            write(folder)
            return
        for line in lines(sys.argv[1] if len(sys.argv) > 1 else folder, *map(int, sys.argv[2:])):
            print(line)


if __name__ == "__main__":
    main()
