"""Worker processes, one for each level, that compute the same cases and answer with hashes of the results.

    python tests/python/level_workers.py [cases] [seed] [case...]    print the results that differ between levels

The level is chosen once per process, so a comparison of levels needs several processes.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType

from mudd_core import _core
from places import HELPERS, ROOT, TESTS


def levels() -> tuple[str, ...]:
    """Return the levels that this CPU has, the lowest first."""
    names = tuple(_core.isa_levels())
    return names[: names.index(_core.detected_isa()) + 1]


class Worker:
    """A process at one level."""

    def __init__(
        self,
        level: str,
        name: str = "",
        python: Sequence[str] = (sys.executable,),
        path: str = "",
        tree: str = "",
    ) -> None:
        """python: the command of the interpreter. path: folders in front of the checkout's. tree: build/<tree>."""
        testing = str(TESTS / "testing_build") if tree else ""
        paths = (path, testing, str(ROOT / "python"), str(HELPERS), os.environ.get("PYTHONPATH", ""))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MUDD_")}
        environment |= {"MUDD_MAX_ISA": level, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        if tree:
            environment["TESTED_TREE"] = tree
        self.name = name or level
        self._process = subprocess.Popen(
            [*python, __file__, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"OMP_NUM_THREADS": "1", **environment},
        )
        assert self._process.stdout is not None
        found = self._process.stdout.readline().strip()
        assert found == level, f"asked for level {level}, got {found!r}"

    def ask(self, case: str, picks: Sequence[int]) -> None:
        """Send a case."""
        assert self._process.stdin is not None
        print(json.dumps([case, list(picks)]), file=self._process.stdin, flush=True)

    def answer(self) -> dict[str, str]:
        """Return the hashes of the case sent last."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the process of level {self.name} ended with code {self._process.wait()}"
        found: dict[str, str] = json.loads(line)
        return found

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Workers:
    """Processes at several levels that compute the same cases."""

    def __init__(self, names: Sequence[str] = (), others: Sequence[Worker] = ()) -> None:
        self._workers = [*(Worker(level) for level in names or levels()), *others]

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.close()

    def hashes(self, case: str, picks: Sequence[int]) -> dict[str, dict[str, str]]:
        """Return the hashes of a case by level."""
        for worker in self._workers:
            worker.ask(case, picks)
        return {worker.name: worker.answer() for worker in self._workers}


def differences(found: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the names of results whose bits differ, with groups of equal levels."""
    first = next(iter(found.values()))
    lines = []
    for name in first:
        groups: dict[str, list[str]] = {}
        for level, hashes in found.items():
            groups.setdefault(hashes.get(name, "absent"), []).append(level)
        if len(groups) > 1:
            lines.append(f"{name}: " + " | ".join(", ".join(group) for group in groups.values()))
    return lines


def compared(workers: Workers, case: str, count: int, rng: random.Random) -> tuple[int, Counter[str]]:
    """Return how many of `count` drawn cases differ between the workers, and how often each result differs."""
    from level_draw import Draw
    from level_results import results

    lines, bad = Counter[str](), 0
    for _ in range(count):
        draw = Draw(rng.randrange)
        results(case, draw)
        found = differences(workers.hashes(case, draw.picks))
        lines.update(found)
        bad += bool(found)
    return bad, lines


def serve() -> None:
    """Answer cases that arrive as lines of JSON."""
    from level_results import hashes

    print(_core.isa(), flush=True)
    for line in sys.stdin:
        case, picks = json.loads(line)
        print(json.dumps(hashes(case, picks)), flush=True)


def main(count: int, seed: int, cases: Sequence[str]) -> int:
    """Print the results that differ between levels; return the number of cases with differences."""
    from level_results import CASES

    wrong = 0
    with Workers() as workers:
        print(f"levels {', '.join(levels())}; {count} cases each, seed {seed}")
        for case in cases or CASES:
            begin = time.monotonic()
            bad, lines = compared(workers, case, count, random.Random(f"{seed} {case}"))
            wrong += bad
            print(f"{case:14} {bad:5} of {count} differ, {time.monotonic() - begin:.1f} s", flush=True)
            for line, times in lines.most_common(12):
                print(f"    {times:5} {line}")
    return wrong


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        numbers = [int(word) for word in sys.argv[1:] if word.isdecimal()]
        names = [word for word in sys.argv[1:] if not word.isdecimal()]
        sys.exit(min(main(*[*numbers, *(40, 1)[len(numbers) :]], names), 1))
