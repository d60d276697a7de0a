"""Install a manylinux wheel as a user would, use it, and time everything from `pip install` to the first loss.

`./run wheel --check` calls it. The environment is bare: no compiler on PATH, no checkout, pip without network, the
wheels of the dependencies in one folder. The report goes to the screen and to bench/results/wheel_<date>.log.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIRST_LOSS = re.compile(r"^step\s+\d+/\d+ .*\bloss ")
NOTEBOOK = """
import mudd_core as mc
config = mc.load_config("tiny.py", ["train.steps=20", "train.eval_every=20"])
trainer = mc.Trainer(config)
first = trainer.step().loss
trainer.fit()
print(f"notebook: loss {first:.3f} at step 1, {trainer.validate().val_loss:.3f} on held-out text after 20 steps")
"""
# Two OpenMP runtimes in one process: the same step alone and with torch.
BESIDE = """
import sys, time
{first}
import numpy as np
import mudd_core as mc
{last}
mc.set_num_threads(2)
config = mc.load_config("tiny.py", ["data.tokenizer=bytes"])
trainer = mc.Trainer(config)
losses = [trainer.step().loss for _ in range(5)]
start = time.perf_counter()
losses += [trainer.step().loss for _ in range(40)]
seconds = time.perf_counter() - start
assert mc.num_threads() == 2
{check}
print("RESULT", 40 * config.train.batch_size * config.train.seq_len / seconds, *losses)
"""
TORCH = "import torch; a = torch.ones(64, 64); assert float((a @ a).sum()) == 64**3"
H5PY = "import h5py, io; f = h5py.File(io.BytesIO(), 'w'); f['x'] = [1, 2]; assert f['x'][1] == 2"


class Report:
    """The report, on the screen and in a file."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        """Print one line and keep it."""
        print(line, flush=True)
        self.lines.append(line)


def cpu_name() -> str:
    """Return the name of the CPU."""
    names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{names[0] if names else f'CPU of {platform.machine()}'}, {len(os.sched_getaffinity(0))} cores"


def call(command: list[str], where: Path, environment: dict[str, str]) -> str:
    """Run a command that must succeed; return its output."""
    done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command} exited with code {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def seconds_to_first_loss(
    command: list[str], where: Path, environment: dict[str, str], begun: float
) -> float:
    """Start a training run and stop it after its first loss. Return the seconds since `begun`."""
    with subprocess.Popen(command, cwd=where, env=environment, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        found = next((time.perf_counter() - begun for line in run.stdout if FIRST_LOSS.match(line)), None)
        run.stdout.read()
    if found is None or run.returncode != 0:
        sys.exit(f"{command} exited with code {run.returncode} and printed {'a' if found else 'no'} loss")
    return found


def bare_environment(folder: Path) -> dict[str, str]:
    """Return the variables of a user without a compiler: PATH has only the programs of the environment."""
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL") if name in os.environ}
    return {**kept, "HOME": str(folder), "PATH": str(folder / "env" / "bin"), "PIP_NO_INDEX": "1"}


def check(wheels: Path, python: str, report: Report) -> None:
    """Install the wheel of this Python and use it in every way."""
    version = subprocess.run(
        [python, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (wheel,) = wheels.resolve().glob(f"mudd_core-*-{version}-*.whl")
    report.say(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB")
    tools = [str(path / "bin" / "python") for path in (ROOT / "build" / "wheel").glob("env-*")]
    show = subprocess.run(
        [tools[0], "-m", "auditwheel", "show", str(wheel)], capture_output=True, text=True, check=True
    )
    report.say(" ".join(show.stdout.split()))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = bare_environment(folder)
        # `pip` of the new environment downloads with the caller's settings, before the clock starts.
        subprocess.run([python, "-m", "venv", str(folder / "env")], check=True)
        pip = [str(folder / "env" / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        for wanted in (["numpy", "pyyaml", "tokenizers"], ["h5py"], ["torch==2.13.0"]):
            subprocess.run(
                [*pip, "download", "-q", "--only-binary=:all:", "-d", str(folder / "wheels"), *wanted],
                check=True,
            )
        report.say(f"environment: {cpu_name()}, {sys.platform}, {version}")
        use(folder, wheel, pip, environment, report)


def use(folder: Path, wheel: Path, pip: list[str], environment: dict[str, str], report: Report) -> None:
    """Train, sample, resume, convert, use the notebook API, and compare with two other libraries."""
    here = folder / "work"
    here.mkdir()
    install = [*pip, "install", "-q", "--no-index", f"--find-links={folder / 'wheels'}"]
    mudd = str(folder / "env" / "bin" / "mudd")
    begun = time.perf_counter()
    call([*install, str(wheel)], here, environment)
    installed = time.perf_counter() - begun
    first = seconds_to_first_loss([mudd, "--config=tiny.py", "--workdir=run"], here, environment, begun)
    report.say(f"pip install: {installed:.1f} s; from pip install to the first loss: {first:.1f} s")
    call([mudd, "report", "run"], here, environment)
    call([mudd, "report", "run", "--html"], here, environment)
    page = (here / "run" / "report.html").stat().st_size
    last = call([mudd, "doctor"], here, environment).strip().splitlines()[-1]
    report.say(f"report.html: {page / 1000:.0f} kB; doctor: {last}")
    rows = [json.loads(line) for line in (here / "run" / "metrics.jsonl").read_text().splitlines()]
    speeds = [row["tokens_per_second"] for row in rows if "tokens_per_second" in row]
    report.say(f"configs/tiny.py: {statistics.median(speeds):,.0f} tokens/s, the median of its rows")
    call([mudd, "sample", "--workdir=run", "--prompt", "def "], here, environment)
    stop_and_resume([mudd, "--config=tiny.py", "--workdir=cut"], here, environment, report)
    call([mudd, "export", "--workdir=run", "--to=exported"], here, environment)
    call([mudd, "import", "exported", "--workdir=imported"], here, environment)
    script = here / "notebook.py"
    script.write_text(NOTEBOOK)
    python = str(folder / "env" / "bin" / "python")
    report.say(call([python, str(script)], here, environment).strip().splitlines()[-1])
    call([*install, "h5py", "torch==2.13.0"], here, environment)
    results = {
        "alone": BESIDE.format(first="", last="", check=""),
        "torch first": BESIDE.format(first=TORCH, last="", check=TORCH),
        "torch last": BESIDE.format(first="", last=TORCH, check=TORCH),
        "h5py first": BESIDE.format(first=H5PY, last="", check=H5PY),
        "h5py last": BESIDE.format(first="", last=H5PY, check=H5PY),
    }
    compare(results, python, here, environment, report)


def stop_and_resume(command: list[str], here: Path, environment: dict[str, str], report: Report) -> None:
    """Check that a run that stops and resumes ends with the hash of an unbroken run."""
    stopped = subprocess.run(
        [*command, "train.stop_at=50"], cwd=here, env=environment, capture_output=True, check=False
    )
    if stopped.returncode != 75:
        sys.exit(f"train.stop_at=50: expected exit code 75, got {stopped.returncode}")
    call(command, here, environment)
    hashes = {json.loads((here / name / "summary.json").read_text())["final_hash"] for name in ("run", "cut")}
    if len(hashes) != 1:
        sys.exit("the resumed run has another hash than the unbroken one")
    report.say("stopped at step 50 and resumed: the hash of the unbroken run")


def compare(
    programs: dict[str, str], python: str, here: Path, environment: dict[str, str], report: Report
) -> None:
    """Check that every library computes equal losses. Report tokens/s: the best of five runs, taken in turn."""
    losses: dict[str, list[str]] = {}
    speeds: dict[str, float] = {}
    for _ in range(5):
        for name, program in programs.items():
            line = call([python, "-c", program], here, environment).strip().splitlines()[-1].split()
            speeds[name] = max(speeds.get(name, 0.0), float(line[1]))
            losses[name] = line[2:]
    for name in programs:
        if losses[name] != losses["alone"]:
            sys.exit(f"{name}: the losses differ from those alone")
        report.say(
            f"{name}: {speeds[name]:,.0f} tokens/s, {speeds[name] / speeds['alone']:.3f} of alone, equal losses"
        )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheels", type=Path, required=True, help="folder of the wheels")
    parser.add_argument("--python", required=True, help="interpreter of the environment")
    parser.add_argument("--out", type=Path, help="file of the report")
    asked = parser.parse_args()
    report = Report()
    check(asked.wheels, asked.python, report)
    today = datetime.date.today().isoformat()
    out = asked.out or ROOT / "bench" / "results" / f"wheel_{today}.log"
    out.write_text("\n".join(report.lines) + "\n")
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
