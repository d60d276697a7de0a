"""The peak of a run: the best measured value, and never below the run's own speed."""

from __future__ import annotations

from fake_engine import FakeEngine, fake_assembly
from fake_runs import config_of
from mudd_core import _core
from mudd_core.engine.flops import peak_flops
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.records.machine import Peak
from mudd_core.tools.profile import Limits, Profile, Timing


def test_measurements_are_spread_over_the_first_steps_and_the_best_counts() -> None:
    given = iter([50.0, 20.0, 80.0, 70.0, 60.0, 75.0, 79.0])
    peak = Peak(lambda: next(given))
    seen = []
    for _ in range(100):
        peak.took_step()
        seen.append(peak.flops)
    assert seen == [50.0] + [80.0] * 99 and not list(given)


def test_no_run_is_above_what_was_measured() -> None:
    peak = Peak(lambda: 50.0)
    assert [peak.fraction(rate) for rate in (25.0, 50.0, 71.0, 35.5)] == [0.5, 1.0, 1.0, 0.5]


def test_rows_of_a_run_are_at_most_the_peak() -> None:
    trainer = Trainer(config_of(), assemble=fake_assembly(FakeEngine()))
    trainer._state._peak = Peak(lambda: 1e-3)  # a machine that had no time for the measurement
    shares = [trainer.step().peak_share for _ in range(5)]
    assert all(0 < share <= 1 for share in shares) and shares[0] == 1


def test_a_profile_takes_the_better_measurement() -> None:
    fast = Timing("blocks.0.attn.q", "linear", "forward", 1.0, 142.0, 1.0, 0.0, 1.0, 1.0)
    assert Limits(100.0, 5.0).best_of(Limits(90.0, 7.0), Profile([], 1.0, 1)) == Limits(100.0, 7.0)
    assert Limits(100.0, 5.0).best_of(Limits(90.0, 7.0), Profile([fast], 1.0, 1)).flops == 142.0


def test_few_tries_are_enough_for_a_measurement() -> None:
    assert peak_flops("fp32", 1) > 1e8 and peak_flops("bf16", 1) > 1e8
    assert _core.peak_gflops(1, tries=2) > 0.1
