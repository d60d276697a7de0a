"""run.json records everything outside the config that determines the bits of a run; a resume reports a change once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fake_engine import FakeEngine
from fake_runs import make
from mudd_core import _core
from mudd_core.cli import main
from mudd_core.run.records import facts as bits

EARLIER = "earlier version, whose bits depend on the CPU's instruction set level"


def facts_of(run: Path) -> dict[str, object]:
    facts: dict[str, object] = json.loads((run / "run.json").read_text())
    return {name: facts[name] for name in (bits.FP32_ORDER, bits.BF16_UNIT, bits.SINCE) if name in facts}


def run_to(step: int, run: Path, *words: str) -> None:
    with make(run, None, f"train.stop_at={step}", *words) as trainer:
        trainer.fit()


def as_of_earlier_version(run: Path) -> None:
    file = run / "run.json"
    facts = json.loads(file.read_text())
    file.write_text(json.dumps({name: v for name, v in facts.items() if name != bits.FP32_ORDER}))


def test_a_run_in_fp32_records_the_order_and_resumes_without_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (5, 10):
        run_to(step, tmp_path / "run")
    assert facts_of(tmp_path / "run") == {bits.FP32_ORDER: _core.fp32_order()} == {bits.FP32_ORDER: 16}
    assert "the bits of this run change" not in capsys.readouterr().err


def test_a_run_of_an_earlier_version_resumes_with_one_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run_to(5, run)
    as_of_earlier_version(run)
    assert main(["report", f"--workdir={run}"]) == 0
    assert "bits of an earlier version: they depend on the instruction set level" in capsys.readouterr().out
    run_to(10, run)
    said = f"the bits of this run change after step 5: it was started with an {EARLIER}"
    assert f"warning: {said}" in capsys.readouterr().err and said in (run / "events.jsonl").read_text()
    assert facts_of(run) == {bits.FP32_ORDER: 16, bits.SINCE: 5}
    run_to(15, run)
    assert "the bits of this run change" not in capsys.readouterr().err
    assert main(["report", f"--workdir={run}"]) == 0
    assert "fp32 order 16, since step 5" in capsys.readouterr().out


def test_a_run_that_saved_no_step_takes_the_order_without_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with make(tmp_path / "run", None, "train.save=false", "train.stop_at=2") as trainer:
        trainer.fit()
    as_of_earlier_version(tmp_path / "run")
    capsys.readouterr()
    run_to(5, tmp_path / "run")
    assert "the bits of this run change" not in capsys.readouterr().err
    assert facts_of(tmp_path / "run") == {bits.FP32_ORDER: 16}


def test_a_rewind_behind_the_change_lowers_its_step(tmp_path: Path) -> None:
    run, streak = tmp_path / "run", frozenset(range(9, 19))
    run_to(8, run)
    as_of_earlier_version(run)
    with make(run, FakeEngine(bad=streak), "train.stop_at=9") as trainer:
        trainer.fit()
    assert facts_of(run) == {bits.FP32_ORDER: 16, bits.SINCE: 8}
    with make(run, FakeEngine(bad=streak)) as trainer:
        assert trainer.fit().rewinds == 1
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [event["to_step"] for event in events if event["event"] == "rewound"] == [5]
    assert facts_of(run) == {bits.FP32_ORDER: 16, bits.SINCE: 5}


@pytest.mark.parametrize(("step", "since"), [(9, 7), (7, 7), (3, 3), (0, None)])
def test_a_start_before_the_change_lowers_its_step(step: int, since: int | None) -> None:
    facts = {bits.FP32_ORDER: 16}
    found, note = bits.change_of_bits(facts | {bits.SINCE: 7}, facts, step)
    assert found == (facts if since is None else facts | {bits.SINCE: since}) and not note


def test_a_run_in_bf16_records_its_unit_and_notes_another_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, bf16 = tmp_path / "run", "train.precision=bf16"
    monkeypatch.setattr(_core, "isa", lambda: "avx512_bf16")
    run_to(5, run, bf16)
    assert facts_of(run) == {bits.FP32_ORDER: 16, bits.BF16_UNIT: "avx512_bf16"}
    monkeypatch.setattr(_core, "isa", lambda: "avx512")
    run_to(10, run, bf16)
    err = capsys.readouterr().err
    assert "after step 5: its bf16 matmuls used another unit (avx512_bf16, now none)" in err
    monkeypatch.setattr(_core, "isa", lambda: "avx2")  # the same bits
    run_to(15, run, bf16)
    assert "the bits of this run change" not in capsys.readouterr().err
    assert main(["report", f"--workdir={run}"]) == 0
    assert "fp32 order 16, bf16 unit none, since step 5" in capsys.readouterr().out


def test_another_number_of_hosts_is_noted_for_gradients_in_bf16() -> None:
    two, four = (bits.bits_facts("fp32", "bf16", hosts) for hosts in (2, 4))
    assert bits.bits_facts("fp32", "fp32", 4) == {bits.FP32_ORDER: 16}
    assert bits.change_of_bits(two, two, 7) == (two, "")
    found, note = bits.change_of_bits(two, four, 7)
    assert found == four | {bits.SINCE: 7} and note.endswith(
        "mesh.wire=bf16 rounds on each host (2 then, 4 now)"
    )
    assert bits.bits_text(found) == "fp32 order 16, gradients in bf16 between 4 hosts, since step 7"


def test_another_order_is_noted() -> None:
    now = {bits.FP32_ORDER: 16}
    fresh, note = bits.change_of_bits({bits.FP32_ORDER: 32}, now, 7)
    assert fresh == {bits.FP32_ORDER: 16, bits.SINCE: 7} and "another order (32 lanes, now 16)" in note


def test_an_emulated_unit_counts_as_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUDD_EMULATE", "emu_amx_bf16")
    assert bits.bf16_unit() == "amx_bf16"
