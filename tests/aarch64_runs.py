"""Compare Python on 64-bit ARM, under qemu-user, with x86-64: ./run soak aarch64 --python [part...].

The log is in bench/results. Parts: families, portable, resumes, files, ranks, mixed; without arguments all of them.
They need the wheel of `./run wheel --arch=aarch64`. The seconds were measured in the emulator, not on an ARM CPU.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests", "tests/python", "python", "bench")]

import build_trees  # noqa: E402
import loss_goldens  # noqa: E402
import same_bits  # noqa: E402
from aarch64_sides import ON_ALL, Side, contents  # noqa: E402
from arm_python import EMULATOR, FOLDER, ArmPython, newest_wheel  # noqa: E402
from mudd_core.config.saved import to_json  # noqa: E402
from places import HELPERS  # noqa: E402
from soak_log import END, Log  # noqa: E402
from tiny_run import write_text  # noqa: E402

ALONE = ("dist.node=rank",)  # qemu-user cannot map shared memory a second time
BPE = ("data.tokenizer=bpe", "data.vocab_size=300")
STOP = 13  # the step after which a run is killed
GOLDENS = """
import sys
import loss_goldens
import mudd_core as mc

assert mc.isa() == sys.argv[1], mc.isa()
for file in sys.argv[2:]:
    for line in loss_goldens.lines_of(mc.load_config(file)):
        print(line)
"""


class Soak:
    """The parts, with their folder, log and environment."""

    def __init__(self, folder: Path, log: Log) -> None:
        self.folder, self.log = folder, log
        self.hashes: dict[str, dict[str, str]] = {}  # final hashes by level and family
        self.arm = ArmPython(folder / "env")
        self.arm.create()
        self.arm.install(str(newest_wheel()))
        text = folder / "text"
        text.mkdir()
        write_text(text)
        paths = os.pathsep.join((str(ROOT / "python"), str(HELPERS)))
        self.x86 = Side(folder / "x86", text, [sys.executable], {"PYTHONPATH": paths, "MUDD_MAX_ISA": ""})
        level = {"MUDD_MAX_ISA": "neon", "PYTHONPATH": str(HELPERS)}
        self.qemu = Side(folder / "qemu", text, [str(self.arm.python)], level)

    def say(self, what: str, wrong: str, begin: float) -> bool:
        """Log a result with its seconds; return True if nothing differs."""
        said = f"DIFFER: {wrong}" if wrong else "equal"
        self.log.say(f"{what}: {said}, {time.monotonic() - begin:.0f} s")
        return not wrong

    def families(self, level: str = "neon") -> bool:
        """Compare the goldens' runs of every family, fp32 and bf16, with the committed bits."""
        begin = time.monotonic()
        files = []
        for family in loss_goldens.FAMILIES:
            for precision in ("fp32", "bf16"):
                config = loss_goldens.config_of(family, precision, str(self.folder / f"cache-{level}"))
                files.append(self.folder / f"{config.name}.json")
                files[-1].write_text(to_json(config))
        extra = {"MUDD_MAX_ISA": level, "PYTHONPATH": str(HELPERS), "OMP_NUM_THREADS": "1"}
        made = self.arm.call(["-c", GOLDENS, level, *map(str, files)], self.folder, extra).splitlines()
        by_file = {
            file: [line for line in made if line.split()[0] in configs]
            for file, configs in loss_goldens.files(level).items()
        }
        wrong = [file.name for file, lines in by_file.items() if lines != loss_goldens.read(file)]
        self.hashes[level] = same_bits.hashes_of(by_file)
        return self.say(f"families at {level}", ", ".join(wrong), begin)

    def portable(self) -> bool:
        """Compare the same runs at the level portable."""
        return self.families("portable")

    def resumes(self) -> bool:
        """Kill a run on one side and continue it on the other."""
        begin = time.monotonic()
        whole = self.trained(self.x86)
        good = True
        for first, last in ((self.x86, self.qemu), (self.qemu, self.x86)):
            name = f"killed-{first.folder.name}"
            first.kill_after(first.train(name), STOP)
            shutil.copytree(first.folder / name, last.folder / name)
            last.call(last.train(name))
            wrong = "" if last.final(name) == whole else "final hash or metrics"
            good &= self.say(f"killed on {first.folder.name}, finished on {last.folder.name}", wrong, begin)
        return good

    def trained(self, side: Side) -> tuple[str, str]:
        """Train the unbroken run of a side, once; return its final hash and metrics."""
        if not (side.folder / "whole" / "summary.json").exists():
            side.call(side.train("whole"))
        return side.final("whole")

    def files(self) -> bool:
        """Compare the files of a token cache, of checkpoints and of exports, byte for byte.

        A run of x86-64 is continued on both sides, so that both have one run id.
        """
        begin = time.monotonic()
        self.x86.call(self.x86.train("both", *BPE, "train.stop_at=2"), 75)
        shutil.copytree(self.x86.folder / "both", self.qemu.folder / "both")
        for side in (self.x86, self.qemu):
            side.call(side.train("both", *BPE))
            side.call(side.argv("export", "--workdir=both", "--to=hf"))
            side.call(side.argv("export", "--workdir=both", "--to=own", "--system=own"))
            side.call(side.argv("export", "--workdir=both", "--to=out.gguf", "--gguf"))
        good = True
        for place in ("cache", "both/checkpoints", "hf", "own", "out.gguf"):
            ours, theirs = (contents(side.folder / place) for side in (self.x86, self.qemu))
            wrong = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
            good &= self.say(f"files of {place} ({len(ours)})", ", ".join(wrong), begin)
        return good

    def ranks(self) -> bool:
        """Train on two ranks under the root's mpirun; all of them run under qemu."""
        begin = time.monotonic()
        self.arm.add_mpi()
        launcher = [*self.arm.program("orterun"), *ON_ALL, "-n", "2"]
        self.qemu.call([*launcher, *self.qemu.train("ranks", *ALONE)])
        wrong = "" if self.qemu.final("ranks") == self.trained(self.x86) else "final hash or metrics"
        return self.say("two ranks of aarch64", wrong, begin)

    def mixed(self) -> bool:
        """Train on a rank of x86-64 and one of ARM in one job: in fp32, in bf16, and where bf16 is refused."""
        begin = time.monotonic()
        self.arm.add_mpi()
        self.x86.call(self.mixed_job("mixed"))
        wrong = "" if self.x86.final("mixed") == self.trained(self.x86) else "final hash or metrics"
        good = self.say("ranks of x86-64 and aarch64", wrong, begin)
        bf16 = "train.precision=bf16"
        self.x86.call(self.x86.train("whole-bf16", bf16), MUDD_MAX_ISA="avx2")
        said = self.x86.call(self.mixed_job("mixed-bf16", bf16))
        self.log.say(
            next((f"    {line}" for line in said.splitlines() if "[ranks]" in line), "    no warning")
        )
        wrong = (
            "" if self.x86.final("mixed-bf16") == self.x86.final("whole-bf16") else "final hash or metrics"
        )
        return good & self.say("the same in bf16, with fp32 arithmetic", wrong, begin)

    def mixed_job(self, run: str, *words: str) -> list[str]:
        """Return the command of a job of two ranks, the first of them on x86-64."""
        parts = []
        for side in (self.x86, self.qemu):
            variables = [f"{name}={side.environment[name]}" for name in ("PYTHONPATH", "MUDD_MAX_ISA")]
            command = self.x86.train(run, *ALONE, *words)
            parts.append(["-n", "1", "env", *variables, *side.python, *command[len(self.x86.python) :]])
        return ["mpirun", *ON_ALL, *parts[0], ":", *parts[1]]


def arm_compiler() -> str:
    """Return the first line of the version text of the cross-compiler."""
    return build_trees.compiler_of(FOLDER / "build")


def main() -> int:
    """Run the parts; return 0 if everything is equal."""
    parts = ("families", "portable", "resumes", "files", "ranks", "mixed")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="part")
    parser.add_argument("--log", type=Path)
    asked = parser.parse_args()
    if unknown := [part for part in asked.parts if part not in parts]:
        parser.error(f"expected parts of {', '.join(parts)}, got {unknown[0]}")
    today = datetime.datetime.now(datetime.UTC).date()
    head = f"soak aarch64 --python: {newest_wheel().name}, {EMULATOR}, {arm_compiler()}; {same_bits.cpu()}"
    log = Log(asked.log or ROOT / "bench" / "results" / f"soak_aarch64_python_{today}.log", head)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), log)
        good = True
        for part in asked.parts or parts:
            good &= getattr(soak, part)()
        if good and soak.hashes:
            same_bits.keep(f"64-bit ARM in {EMULATOR}", arm_compiler(), soak.hashes)
    log.say(f"{END}{time.monotonic() - begin:.0f} s; {'equal' if good else 'BITS DIFFER'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
