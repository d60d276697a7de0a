"""The long forms of the fault and bit tests of ranks: ./run soak mpi [kills [seed]]; a log in bench/results.

named   a rank is killed at every named instant of 2 and 4 ranks, also with each rank as a separate node
axes    `kills` / 5 kills (40) of one of 4 ranks for each axis, inside its messages, in at most --minutes for each
limited a model whose state is 1.5 times the address space of a rank trains only with mesh.zero=3
random  `kills` kills (200) of a random rank at a random time; then the run ends with the bits of an unbroken run
bits    families, precisions, meshes with experts, worlds 1, 2, 4 and 8, inside a node and between nodes

--only names some of them, --axis some of the axes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("tests/testing_build", "tests", "tests/python", "tests/python/engine", "python")
sys.path[:0] = [str(ROOT / folder) for folder in FOLDERS]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[: len(FOLDERS)])

from mpi_ranks import mpirun_process, ranks_of, window_files  # noqa: E402
from mudd_core.config import to_dict  # noqa: E402
from rank_faults import MPIRUN, Kills, instants, run_of, same  # noqa: E402
from soak_log import Log  # noqa: E402
from test_ranks_mpi import PROGRAM, SHORT, cases, end_of  # noqa: E402
from tiny_run import CONFIG, MIXTURE, TinyRun, write_text  # noqa: E402


def named_kills(folder: Path, text: Path, whole: TinyRun, log: Log) -> bool:
    """Kill a rank at every named instant, then finish the run; return True if the bits are equal."""
    good = True
    for world, node in ((2, "host"), (2, "rank"), (4, "host")):
        kills = Kills(folder / f"named_{world}_{node}", text, world, (f"dist.node={node}",))
        points = list(instants(world))
        for rank, point in points:
            kills.kill(rank, point)
        equal = kills.finish(whole)
        good &= equal
        log.say(
            f"named kills: {world} ranks, dist.node={node}: {len(points)} kills, slowest end "
            f"{kills.slowest:.1f} s, bits {'equal' if equal else 'DIFFER'}"
        )
    return good


# Config, overrides and the phase of the messages.
AXES = {
    "mesh.expert=2": (MIXTURE, ("mesh.expert=2",), "exchange"),
    "mesh.expert=2 mesh.zero=3": (MIXTURE, ("mesh.expert=2", "mesh.zero=3", "dist.node=rank"), "exchange"),
    "mesh.zero=3": (CONFIG, ("mesh.zero=3", "dist.node=rank"), "gather"),
}


def axis_kills(folder: Path, text: Path, axis: str, count: int, minutes: float, seed: int, log: Log) -> bool:
    """Kill ranks inside the messages of an axis, as often as the minutes allow, then finish the run."""
    config, words, phase = AXES[axis]
    number = list(AXES).index(axis)
    rng, steps = random.Random(seed + number), ("train.steps=200", "train.eval_every=100")
    whole = run_of(folder / f"axis_{number}_whole", text, *steps, config=config)
    assert whole.finish(600) == 0, whole.tail
    kills = Kills(folder / f"axis_{number}", text, 4, (*steps, *words), config)
    points, end = [], time.monotonic() + 60 * minutes
    while len(points) < count and time.monotonic() < end:
        # A step has about ten such messages, every tenth step is saved.
        rank, message = rng.randrange(4), rng.randint(1, 130)
        kills.kill(rank, f"phase_{phase}:{message}")
        points.append(f"{rank}:{message}")
        print(f"{axis}: {len(points)} of {count} kills", flush=True)
    equal = kills.finish(whole)
    log.say(
        f"kills inside messages: {axis}: {len(points)} of {count} kills of one of 4 ranks, seed {seed + number}, at "
        f"the instants (rank:{phase}) {' '.join(points)}; slowest end {kills.slowest:.1f} s, "
        f"bits {'equal' if equal else 'DIFFER'}"
    )
    return equal and kills.slowest < 5


def axes_kills(folder: Path, text: Path, asked: argparse.Namespace, log: Log) -> bool:
    """Run the kills of every requested axis, even if another axis fails."""
    good, count = True, max(1, asked.kills // 5)
    for axis in asked.axis:
        good &= axis_kills(folder, text, axis, count, asked.minutes, asked.seed, log)
    return good


# 258 million weights, whose state is 1.5 times the address space of a rank.
LARGE = ("model.d_model=1024", "model.n_layer=20", "model.d_ff=2816", "train.steps=2", "train.seq_len=16")
STATE = 16 * 20 * (4 * 1024 * 1024 + 3 * 1024 * 2816)  # bytes


def limited(folder: Path, text: Path, log: Log) -> bool:
    """Train a model that does not fit into a rank: 4 ranks with mesh.zero=3 reach the hash of one unlimited process."""
    limit = f'ulimit -v {STATE * 2 // 3 >> 10}; exec "$@"'
    jobs = {}
    for name, words in {"one": (), "zero=1": ("mesh.zero=1",), "zero=3": ("mesh.zero=3",)}.items():
        ranks = ("--ranks=4", "dist.node=rank", *words) if words else ()
        prefix = ("sh", "-c", limit, "sh") if words else ()
        jobs[name] = run_of(folder / f"limited_{name}", text, *LARGE, *ranks, prefix=prefix)
    codes = {name: job.finish(900) for name, job in jobs.items()}
    told = "set mesh.zero=3" in jobs["zero=1"].output
    equal = codes["one"] == codes["zero=3"] == 0 and (
        jobs["one"].summary()["final_hash"] == jobs["zero=3"].summary()["final_hash"]
    )
    log.say(
        f"limited: state {STATE >> 20} MiB on 4 ranks of {STATE * 2 // 3 >> 20} MiB (ulimit -v): mesh.zero=1 ends with "
        f"{codes['zero=1']}{' and names mesh.zero=3' if told else ''}, mesh.zero=3 with {codes['zero=3']}, final hash "
        f"{'equal' if equal else 'DIFFERS'}"
    )
    return equal and codes["zero=1"] == 2 and told


def random_kills(folder: Path, text: Path, whole: TinyRun, count: int, seed: int, log: Log) -> bool:
    """Kill a run at random times; each start resumes the killed one."""
    rng, done, runs, slowest, equal = random.Random(seed), 0, 0, 0.0, True
    while done < count:
        run = run_of(folder / f"random_{runs}", text, prefix=(*MPIRUN, "-n", str(rng.choice((2, 4)))))
        runs += 1
        while True:
            process = run.start()
            end = time.monotonic() + rng.uniform(1.2, 3.2)
            while process.poll() is None and time.monotonic() < end:
                time.sleep(0.01)
            ranks = ranks_of(run)
            if process.poll() is not None or not ranks:
                process.wait(60)
                break
            os.kill(ranks[rng.choice(sorted(ranks))], signal.SIGKILL)
            died = time.monotonic()
            code = process.wait(20)
            if code == 0:
                break
            slowest, done = max(slowest, time.monotonic() - died), done + 1
        if run.finish() != 0 or not same(run, whole):
            log.say(f"random kills: run {runs}: bits DIFFER\n{run.tail}")
            equal = False
    log.say(
        f"random kills: {done} of {runs} runs, seed {seed}, slowest end {slowest:.1f} s, "
        f"bits {'equal' if equal else 'DIFFER'}"
    )
    return equal


def bit_tests() -> Iterator[tuple[str, list[str]]]:
    """Yield name and files of the bit tests, which cover every family, precision and optimizer."""
    files = ("test_ranks", "test_cut_ranks", "test_expert_ranks", "test_ranks_mpi", "test_resume_of_ranks")
    for name in (*files, "test_checkpoint_ranks", "test_mpi_runs", "test_any_mesh"):
        [file] = (ROOT / "tests" / "python").rglob(f"{name}.py")
        yield name, [str(file)]


def matrix(log: Log) -> bool:
    """Compare families, precisions and world sizes as processes with one process; then run the bit tests."""
    configs = cases()
    told = json.dumps({case: to_dict(config) for case, config in configs.items()})
    wanted = {case: end_of(config) for case, config in configs.items()}
    good = True
    for ranks in (1, 2, 4, 8):
        for node in ("host", "rank"):
            job = mpirun_process(ranks, PROGRAM, told, node, SHORT)
            out, errors = job.communicate(timeout=1800)  # 8 ranks on 2 cores are slow
            found = json.loads(out.splitlines()[0]) if job.returncode == 0 else {}
            differ = [case for case in configs if found.get(case) != wanted[case]]
            good &= not differ
            log.say(
                f"bits: {ranks} ranks, dist.node={node}: {len(configs) - len(differ)} of {len(configs)} equal"
                + (f"; differ: {', '.join(differ)}; {errors[-300:]}" if differ else "")
            )
    for name, words in bit_tests():
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
        all_pairs = {**os.environ, "MUDD_MESH_PAIRS": "30"}  # of test_any_mesh
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=all_pairs)
        passed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        log.say(f"{name}: {'passed' if done.returncode == 0 else 'FAILED'} {' '.join(passed)}".rstrip())
        good &= done.returncode == 0
    return good


def main() -> int:
    """Run all parts; return 0 if every one passes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("kills", type=int, nargs="?", default=200)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    parts = ("named", "axes", "limited", "random", "bits")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--axis", nargs="+", choices=AXES, default=list(AXES), metavar="AXIS")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--log", type=Path)
    asked = parser.parse_args()
    begin, today = time.monotonic(), datetime.datetime.now(datetime.UTC).date()
    log = Log(asked.log or ROOT / "bench" / "results" / f"soak_mpi_{today}.log")
    log.say(f"soak mpi: {today}, {platform.machine()}, {os.cpu_count()} cores, {asked.kills} random kills")
    before = set(window_files())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text").mkdir()
        text = write_text(folder / "text")
        whole = run_of(folder / "whole", text)
        assert whole.finish() == 0, whole.tail
        works = {
            "named": lambda: named_kills(folder, text, whole, log),
            "axes": lambda: axes_kills(folder, text, asked, log),
            "limited": lambda: limited(folder, text, log),
            "random": lambda: random_kills(folder, text, whole, asked.kills, asked.seed, log),
            "bits": lambda: matrix(log),
        }
        good = True
        for part in asked.only:
            good &= works[part]()
    left = set(window_files()) - before
    log.say(
        f"files of windows left: {len(left)}; {time.monotonic() - begin:.0f} s; {'all hold' if good else 'FAILED'}"
    )
    return 0 if good and not left else 1


if __name__ == "__main__":
    sys.exit(main())
