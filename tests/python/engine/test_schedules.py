"""inverse_sqrt and phases: the formulas in float64, a resume at any step, the plan's curve, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from launched import launched
from mudd_core.base.show.terminal import Screen
from mudd_core.cli import main
from mudd_core.config import Config, load_config
from mudd_core.engine.optimizer_groups import learning_rate
from mudd_core.run.build.plan_schedule import schedule_lines
from near import REORDERED

PHASES = "linear:10:0:1,constant:20:1,cosine:30:1:0.5,inverse_sqrt:15:0.5:0.25,sqrt:rest:0.25:0"
FORMULAS: list[tuple[int, int, Callable[[float], float]]] = [
    (0, 10, lambda p: p),
    (10, 20, lambda p: 1.0),
    (30, 30, lambda p: 0.5 + 0.5 * 0.5 * (1 + math.cos(math.pi * p))),
    (60, 15, lambda p: 0.5 / math.sqrt(1 + 3 * p)),
    (75, 25, lambda p: 0.25 - 0.25 * math.sqrt(p)),
]


def of(*words: str) -> Config:
    return load_config("tiny.py", ["optim.lr=0.02", "optim.warmup_steps=0", "train.steps=100", *words])


def in_phases(*words: str) -> Config:
    return of("optim.schedule=phases", f"optim.phases={PHASES}", *words)


def test_phases_are_their_formulas() -> None:
    config = in_phases()
    for begin, length, formula in FORMULAS:
        for t in range(begin, begin + length):
            exact = 0.02 * formula((t - begin) / length)
            # Both are float64; the core has its own cosine.
            assert learning_rate(config, t) == pytest.approx(exact, rel=1e-14, abs=1e-18)
    assert learning_rate(config, 100) == learning_rate(config, 10_000) == 0
    longer = in_phases("train.steps=500", "optim.schedule_steps=100")
    assert [learning_rate(longer, t) for t in range(100)] == [learning_rate(config, t) for t in range(100)]


@pytest.mark.parametrize(("warm_up", "scale"), [(10, 0), (10, 50), (0, 0), (0, 7)])
def test_inverse_sqrt_is_the_one_of_transformers(warm_up: int, scale: int) -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    config = of(
        "optim.schedule=inverse_sqrt",
        f"optim.warmup_steps={warm_up}",
        f"optim.decay_steps={scale}",
        "optim.warmup=zero",
    )
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.02)
    theirs = transformers.get_inverse_sqrt_schedule(optimizer, warm_up, timescale=scale or None)
    for t in range(60):
        assert learning_rate(config, t) == pytest.approx(theirs.get_last_lr()[0], rel=REORDERED)
        optimizer.step()
        theirs.step()


def test_the_plan_draws_the_rates() -> None:
    config = in_phases()
    curve, ends = schedule_lines(config, 100, Screen())
    digits = curve.split()[-1]
    assert digits[0] == "0" and digits[8] == digits[17] == "9" and digits[-1] == "0" and len(digits) == 60
    assert ends.strip() == "lr 0 at update 1, 0.02 at 11, 0.000101 at 100 (phases)"
    blocks = schedule_lines(config, 100, Screen(80, True))[0].split()[-1]
    assert blocks[0] == "\u2581" and blocks[8] == "\u2588" and len(blocks) == 60
    assert schedule_lines(config, None) == []
    assert schedule_lines(replace(config, optim=replace(config.optim, lr=0.0)), 3)[0].split()[-1] == "000"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["optim.phases=linear:5:1"], "optim.phases: expected optim.schedule=phases with it, got cosine"),
        (["optim.schedule=phases"], "optim.phases: expected phases for optim.schedule=phases, such as"),
        (["optim.schedule=phases", "optim.phases=root:3:1"], "got 'root:3:1'"),
        (["optim.schedule=phases", "optim.phases=linear:3"], "got 'linear:3'"),
        (["optim.schedule=phases", "optim.phases=linear:3:1,"], "got ''"),
        (
            ["optim.schedule=phases", "optim.phases=linear:0:1"],
            "steps: expected a whole number of at least 1",
        ),
        (["optim.schedule=phases", "optim.phases=linear:3:nan"], "from: expected a number of at least 0"),
        (["optim.schedule=phases", "optim.phases=linear:3:1:-1"], "to: expected a number of at least 0"),
        (["optim.schedule=phases", "optim.phases=constant:3:1:2"], "one factor for a constant phase"),
        (["optim.schedule=phases", "optim.phases=inverse_sqrt:3:1:0"], "factors above 0 for inverse_sqrt"),
        (
            ["optim.schedule=phases", "optim.phases=linear:rest:1,linear:3:1"],
            "rest as the steps of the last phase",
        ),
        (["optim.schedule=phases", "optim.phases=linear:100:1,linear:rest:1"], "updates that are left"),
        (
            ["optim.schedule=phases", "optim.phases=linear:3:1", "optim.warmup_steps=5"],
            "add optim.warmup_steps=0",
        ),
        (["optim.schedule=wsd", "wsd_decay_steps_fraction=0.1"], "optim.decay_steps=10"),
        (["lr_scheduler_type=inverse_sqrt"], "optim.schedule=inverse_sqrt"),
        (["lr_scheduler_type=warmup_stable_decay"], "optim.schedule=wsd"),
    ],
)
def test_wrong_phases_and_foreign_names_exit_with_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config=tiny.py", "--plan", "optim.warmup_steps=0", "train.steps=100", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_run_in_phases_resumes_at_any_step_with_the_bits_of_one(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one line of text, repeated. " * 200)
    words = [
        f"data.path={tmp_path / 'text.txt'}",
        f"data.cache_dir={tmp_path / 'cache'}",
        "data.tokenizer=bytes",
    ]
    words += [
        "train.batch_size=2",
        "train.seq_len=16",
        "train.threads=1",
        "train.steps=6",
        "train.log_every=1",
    ]
    words += ["optim.warmup_steps=0", "optim.schedule=phases", "optim.phases=linear:2:0.5:1,sqrt:rest:1:0"]

    def trained(name: str, *stops: int) -> tuple[str, list[float]]:
        run = tmp_path / name
        for stop in (*stops, 0):
            command = [
                "--config=tiny.py",
                f"--workdir={run}",
                *words,
                *([f"train.stop_at={stop}"] if stop else []),
            ]
            done = launched(tmp_path, *command)
            assert done.returncode == (75 if stop else 0), done.stderr
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return (
            str(json.loads((run / "summary.json").read_text())["final_hash"]),
            [row["lr"] for row in rows if "lr" in row],
        )

    want = trained("whole")
    assert trained("stopped", 1, 3) == want
    assert want[1][:3] == [0.5 * 0.003, 0.75 * 0.003, 0.003]
