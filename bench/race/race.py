"""Compare models at equal minutes: time their steps in turn, train each, print the table.

    python bench/race/race.py measure                        # on a quiet machine
    python bench/race/race.py run --minutes=3 --seeds=1      # again: continues after a stop
    python bench/race/race.py table --minutes=3 --seeds=1

The steps of a run follow from the measured times relative to the base, whose step counts as 155 ms
(README). So a busy machine changes the seconds of a run and nothing else. --kinds: charged = a step
costs the update of the touched rows, by a C++ loop (bench/row_update.cc); dense = its measured time;
equal = the tokens of the base. FOLDER/runs.jsonl has the results; finished runs are skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contestants import BASE, ROOT, Contestant, chosen
from entries import KINDS, Entry, Result, append, entry_of, finished
from paired import gain_text, markdown
from step_times import StepTime, measure, read, write

from mudd_core.cli.sweep.processes import STOPPED, Processes
from shapes import commit, cpu_name, usable_cores

CORPORA = {"code": (), "prose": ("data.path={data}/prose.txt",)}
WARMUP = 150  # updates, at most an eighth of a run


def planned(a: argparse.Namespace, times: dict[str, StepTime]) -> list[tuple[Contestant, Entry]]:
    """Return the runs of the options in order, each once: seed by seed, the base first."""
    runs: dict[Entry, Contestant] = {}
    for minutes in a.minutes:
        for seed in range(a.seeds):
            for corpus in a.corpora:
                for kind in a.kinds:
                    for one in chosen(a.only):
                        runs.setdefault(entry_of(one, times, minutes, kind, corpus, seed), one)
    return [(one, entry) for entry, one in runs.items()]


def command(a: argparse.Namespace, one: Contestant, entry: Entry) -> list[str]:
    """Return the command of a run; it resumes a run that was stopped."""
    data = [text.format(data=a.folder / "data") for text in CORPORA[entry.corpus]]
    settings = [
        f"train.steps={entry.steps}",
        f"train.seed={entry.seed}",
        f"optim.warmup_steps={min(WARMUP, entry.steps // 8)}",
        f"train.save_every={max(1, entry.steps // 4)}",
        "train.eval_every=0",
        "train.keep_last=1",
    ]
    settings += [f"eval.max_batches={a.eval_batches}"] if a.eval_batches else []
    work = f"--workdir={a.folder / 'work' / entry.folder}"
    return [sys.executable, "launch.py", f"--config={one.config}", *one.arguments, *data, *settings, work]


def ended(a: argparse.Namespace, entry: Entry, code: int) -> Result:
    """Return the result of a run that has ended and remove its work directory. Raise SystemExit if it failed."""
    work = a.folder / "work" / entry.folder
    summary = work / "summary.json"
    done = json.loads(summary.read_text()) if code == 0 and summary.exists() else {}
    if done.get("step") != entry.steps:
        raise SystemExit(f"[race] {entry.folder}: the run ended early with exit code {code}")
    shutil.rmtree(work)
    return Result(
        entry,
        done["val_bits_per_byte"],
        done["seconds"],
        done["final_hash"],
        commit(),
        time.strftime("%Y-%m-%d"),
    )


def run(a: argparse.Namespace) -> int:
    """Run all planned runs that have no result; return the exit code, 75 after a request to stop."""
    known, times = finished(a.folder / "runs.jsonl"), read(a.folder / "step_times.json")
    left = [(one, entry) for one, entry in planned(a, times) if entry not in known]
    hours = sum(entry.steps * times[one.clock].dense for one, entry in left) / 3600
    print(f"{len(left)} runs are left, about {hours:.1f} hours on a quiet machine without their validations")

    def add(place: int, code: int, messages: str) -> None:
        if code == STOPPED:
            return
        if code:
            print(messages, file=sys.stderr)
        result = ended(a, left[place][1], code)
        append(a.folder / "runs.jsonl", [result])
        print(
            f"{place + 1}/{len(left)} {result.entry.folder}: {result.bits_per_byte:.4f} bits per byte",
            flush=True,
        )

    lines = [command(a, one, entry) for one, entry in left]
    return 0 if Processes(a.jobs).run(lines, lambda _: None, add) else STOPPED


def table(a: argparse.Namespace) -> str:
    """Return a table for each corpus and budget: bits per byte, and the gain over the base in paired seeds."""
    known, times = finished(a.folder / "runs.jsonl"), read(a.folder / "step_times.json")
    parts = [
        f"Race on {cpu_name()}, {usable_cores()} threads; gain: bits per byte below the base, same seeds.\n"
    ]
    columns = [f"{kind} {what}" for kind in a.kinds for what in ("steps", "bpb", "gain")]
    header = ["model", "ms a step", "ms charged", *columns]
    for corpus in a.corpora:
        for minutes in a.minutes:
            rows = [_row(a, one, times, known, (corpus, minutes)) for one in chosen(a.only)]
            parts += [f"{corpus}, {minutes:g} minutes\n", markdown(header, rows)]
    return "\n".join(parts)


def _row(
    a: argparse.Namespace,
    one: Contestant,
    times: dict[str, StepTime],
    known: dict[Entry, Result],
    place: tuple[str, float],
) -> list[str]:
    seconds = times[one.clock]
    cells = [one.name, f"{1e3 * seconds.dense:.1f}", f"{1e3 * seconds.charged:.1f}"]
    for kind in a.kinds:
        bits, gains, steps = [], [], 0
        for seed in range(a.seeds):
            mine, base = (entry_of(c, times, place[1], kind, place[0], seed) for c in (one, Contestant(BASE)))
            steps = mine.steps
            if mine in known:
                bits.append(known[mine].bits_per_byte)
            if mine in known and base in known:
                gains.append(known[base].bits_per_byte - known[mine].bits_per_byte)
        mean = f"{sum(bits) / len(bits):.4f}" if bits else "-"
        cells += [str(steps), mean, gain_text(gains)]
    return cells


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("phase", choices=("measure", "run", "table"))
    p.add_argument("--folder", type=Path, default=ROOT / "bench/results/race", help="results, data and runs")
    p.add_argument("--minutes", type=_numbers, default=[3.0], help="budgets, such as 3,7,15")
    p.add_argument("--seeds", type=int, default=1, help="number of seeds, from 0")
    p.add_argument("--corpora", type=_names(tuple(CORPORA)), default=list(CORPORA), help="code,prose")
    p.add_argument("--kinds", type=_names(KINDS), default=["charged", "equal"], help=",".join(KINDS))
    p.add_argument("--only", default="", help="models; the base is always one of them; default: all")
    p.add_argument("--jobs", type=int, default=1, help="runs at the same time, each on its own cores")
    p.add_argument("--steps", type=int, default=25, help="measured steps of each model")
    p.add_argument(
        "--eval-batches", type=int, default=0, help="most batches of a validation, for a trial; 0 = all"
    )
    return p.parse_args(argv)


def _numbers(text: str) -> list[float]:
    found = [float(one) for one in text.split(",")]
    if not found or min(found) <= 0:
        raise argparse.ArgumentTypeError(f"expected positive numbers such as 3,7,15, got '{text}'")
    return found


def _names(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        found = text.split(",")
        for one in found:
            if one not in known:
                raise argparse.ArgumentTypeError(f"expected names of {', '.join(known)}, got '{one}'")
        return found

    return names


def main() -> int:
    """Run the phase."""
    a = parse()
    os.chdir(ROOT)
    a.folder = a.folder.resolve()
    a.folder.mkdir(parents=True, exist_ok=True)
    if a.phase == "measure":
        write(a.folder / "step_times.json", measure(chosen(a.only), a.steps, usable_cores()))
    elif a.phase == "run":
        return run(a)
    else:
        print(table(a))
    return 0


if __name__ == "__main__":
    sys.exit(main())
