"""Check the loops of the NEON kernels in the assembly that the compiler made:

    cmake --preset aarch64 && .venv/bin/python tests/neon_loops.py build/aarch64

The build tree needs Debian's package g++-aarch64-linux-gnu.
In the main loop of each fp32 register tile (matmuls and both gradients) at least 70 % of the instructions must be
multiply-adds; the loop over the last k, at most three, may have fewer. No loop over k, of any tile of the matmuls or of
attention, may use the stack: that is a spilled sum. Other kernels are not checked.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LEAST_SHARE = 0.7
# By rows: matmuls and gradients of inputs. By columns: gradients of weights.
TILES = {"by rows": "micro<FmaStep, 6, 1, false>", "by columns": "micro<FmaStep, 6, 6, false>"}
KERNELS = ("gemm", "attention")
_DENSE = 0.5  # loops over k have a larger share of multiply-adds than any other
_JUMP = re.compile(r"(?:b(?:\.\w+)?|cbn?z|tbn?z)\t(?:.*, )?([0-9a-f]+) <")


class Loop(NamedTuple):
    """An innermost loop of a function."""

    function: str
    instructions: list[str]

    @property
    def multiply_adds(self) -> int:
        """Return the count of vector multiply-adds."""
        return sum(text.startswith(("fmla\t", "fmls\t")) for text in self.instructions)

    @property
    def share(self) -> float:
        """Return the part of the instructions that are multiply-adds."""
        return self.multiply_adds / len(self.instructions)

    @property
    def spills(self) -> int:
        """Return the count of instructions that use the stack."""
        return sum("[sp" in text or "[x29" in text for text in self.instructions)


def loops(disassembly: str) -> Iterator[Loop]:
    """Yield the innermost loops in the text of `objdump -d -C --no-show-raw-insn`."""
    for block in re.split(r"\n(?=[0-9a-f]{16} <)", disassembly):
        if not (head := re.match(r"[0-9a-f]{16} <(.*)>:", block)):
            continue
        lines = [
            (int(place, 16), text)
            for place, text in re.findall(r"^ +([0-9a-f]+):\t(.*)$", block, re.MULTILINE)
        ]
        index = {place: i for i, (place, _) in enumerate(lines)}
        jumps = [
            (index.get(int(m[1], 16), len(lines)), i)
            for i, (_, t) in enumerate(lines)
            if (m := _JUMP.match(t))
        ]
        back = [(start, end) for start, end in jumps if start <= end]
        name = head[1].replace("mudd::neon::", "").replace("(anonymous namespace)::", "")
        for start, end in back:
            if not any((s, e) != (start, end) and start <= s and e <= end for s, e in back):
                yield Loop(name, [text for _, text in lines[start : end + 1]])


def faults(found: list[Loop]) -> list[str]:
    """Return what is wrong with the loops of the matmul kernels."""
    wrong = []
    for what, tile in TILES.items():
        of_tile = [loop for loop in found if tile in loop.function]
        most = max(of_tile, key=lambda loop: loop.multiply_adds, default=None)
        if most is None or most.multiply_adds < 24:
            wrong.append(f"{tile}: expected a loop of at least 24 multiply-adds")
        elif most.share < LEAST_SHARE:
            wrong.append(f"{what}: {most.share:.1%} multiply-adds, expected at least {LEAST_SHARE:.0%}")
    for loop in found:
        if loop.share > _DENSE and loop.spills:
            wrong.append(
                f"{loop.function[:60]}: {loop.spills} spills in a loop of {loop.multiply_adds} multiply-adds"
            )
    return wrong


def loops_of(build: Path) -> list[Loop]:
    """Compile the kernels in a build tree. Return their loops."""
    objects = [f"CMakeFiles/mudd_level_neon.dir/levels/{name}_neon.cc.o" for name in KERNELS]
    subprocess.run(["ninja", "-j1", "-C", str(build), *objects], check=True, stdout=subprocess.DEVNULL)
    command = ["aarch64-linux-gnu-objdump", "-d", "-C", "--no-show-raw-insn"]
    return [
        loop
        for name in objects
        for loop in loops(
            subprocess.run([*command, str(build / name)], check=True, capture_output=True, text=True).stdout
        )
    ]


def main() -> int:
    """Print the share of each tile and the faults; return 1 if there are any."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    found = loops_of(parser.parse_args().folder)
    for what, tile in TILES.items():
        for loop in found:
            if tile in loop.function and loop.multiply_adds >= 24:
                print(
                    f"{what}: {loop.multiply_adds} of {len(loop.instructions)}, {loop.share:.1%}, {loop.spills} spills"
                )
    dense = [loop for loop in found if loop.share > _DENSE]
    print(f"{len(dense)} loops over k in {', '.join(KERNELS)}")
    wrong = faults(found)
    print("\n".join(wrong) or "no faults")
    return min(1, len(wrong))


if __name__ == "__main__":
    sys.exit(main())
