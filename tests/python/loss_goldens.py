"""Ten updates of every family in fp32 and bf16 at the level that is active: losses, gradient norms, the final hash.

`python tests/python/loss_goldens.py` prints the lines of this process's level; with `--write` it makes the files in
tests/goldens/losses again, one for each level. A change of any bit needs new files and a line in CHANGELOG.md.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from tempfile import TemporaryDirectory

from places import HELPERS, ROOT, TESTS

FOLDER = ROOT / "tests" / "goldens" / "losses"
# Cases of small_models.CASES by file: <prefix><level>.txt. A later case has a file of its own.
FILES = {
    "": ("llama_gqa", "gpt2", "mudd", "tokenformer", "mup", "mixtral"),
    "muddformer_experts_": ("mudd_experts",),
}
FAMILIES = tuple(family for families in FILES.values() for family in families)
STEPS = 10
# Environment of each level. Emulations give the bits of the hardware on every CPU.
LEVELS = {
    "portable": {"MUDD_MAX_ISA": "portable"},
    "avx2": {"MUDD_MAX_ISA": "avx2"},
    "emu_avx512_bf16": {"MUDD_EMULATE": "emu_avx512_bf16"},
    "emu_amx_bf16": {"MUDD_EMULATE": "emu_amx_bf16"},
}


def lines(cache: str) -> Iterator[str]:
    """The lines of the active level; `cache` is a folder for the token cache."""
    import mudd_core as mc
    from mudd_core.config import Config, DataConfig, EvalConfig, OptimConfig, TrainConfig
    from small_models import CASES

    for family in FAMILIES:
        model = dataclasses.replace(CASES[family][0], vocab_size=0, max_seq_len=24)
        for precision in ("fp32", "bf16"):
            config = Config(
                name=f"{family}-{precision}",
                model=model,
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
            with mc.Trainer(config) as trainer:
                for _ in range(STEPS):
                    record = trainer.step()
                    yield f"{config.name} {record.step} {record.loss.hex()} {record.grad_norm.hex()}"
                yield f"{config.name} hash {trainer.final_hash()}"


def lines_at(level: str, cache: str) -> list[str]:
    """The lines of a level, from a process of its own: the level is chosen once a process."""
    paths = [str(ROOT / "python"), str(HELPERS), str(TESTS)]
    paths += [os.environ[name] for name in ("PYTHONPATH",) if name in os.environ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MUDD_")}
    environment |= {"PYTHONPATH": os.pathsep.join(paths), **LEVELS[level]}
    process = subprocess.run(
        [sys.executable, __file__, cache], env=environment, capture_output=True, text=True, check=False
    )
    if process.returncode:
        raise RuntimeError(f"{level}: exit {process.returncode}\n{process.stderr}")
    return process.stdout.splitlines()


def read(level: str) -> list[str]:
    """The committed lines of a level, without the heads that say how they were made."""
    text = "".join((FOLDER / f"{prefix}{level}.txt").read_text() for prefix in FILES).splitlines()
    return [line for line in text if not line.startswith("#")]


def write(level: str, cache: str) -> None:
    """Write the files of a level anew."""
    compiler = subprocess.run(["c++", "--version"], capture_output=True, text=True, check=True).stdout
    head = (
        f"# maker: python tests/python/loss_goldens.py --write\n# date: {time.strftime('%Y-%m-%d')}\n"
        f"# compiler: {compiler.splitlines()[0]}\n# config-precision, step, loss, gradient norm\n"
    )
    made = lines_at(level, cache)
    for prefix, families in FILES.items():
        own = [line for line in made if line.rsplit("-", 1)[0] in families]
        (FOLDER / f"{prefix}{level}.txt").write_text(head + "\n".join(own) + "\n")


def main() -> None:
    """Print this level's lines, or write all files."""
    with TemporaryDirectory() as folder:
        if sys.argv[1:] == ["--write"]:
            for level in LEVELS:
                write(level, folder)
            return
        for line in lines(sys.argv[1] if len(sys.argv) > 1 else folder):
            print(line)


if __name__ == "__main__":
    main()
