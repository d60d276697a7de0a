"""Needs of mc.Trainer(run, at_step=N) besides checkpoints: own code, starting weights, data, a storage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import mudd_core as mc
from memory_bucket import open_bucket
from mudd_core.base.errors import FormatError, UserError
from own_cases import plus_file
from rank_runs import config_of
from test_at_step import Recorded, contents, state_of


def trained(config: mc.Config, folder: Path | str) -> Recorded:
    """Train a run to its end; return its state after each update."""
    recorded = Recorded()
    with mc.Trainer(config, folder, callback=recorded) as trainer:
        trainer.fit(progress=False)
    return recorded


def test_the_code_of_a_run_from_another_machine_needs_trust(
    tmp_path: Path, tiny_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tiny_text, **{"train.steps": 4, "train.save_every": 2})
    recorded = trained(config.replace({"model": {"family": f"{plus_file(tmp_path)}:Plus"}}), tmp_path / "run")
    file = tmp_path / "run/model_family.py"
    file.write_text(file.read_text() + "\n# read me\n")
    with pytest.raises(UserError, match="expected the run's copy with SHA-256"):
        mc.Trainer(tmp_path / "run", at_step=3)
    facts = json.loads((tmp_path / "run/run.json").read_text())
    from mudd_core.config.own_files import sha256_of

    facts["own_files"]["model.family"]["sha256"] = sha256_of(file.read_bytes())
    (tmp_path / "run/run.json").write_text(json.dumps(facts))
    before = contents(tmp_path / "run")
    with pytest.raises(UserError, match="in Python trust_code=True"):
        mc.Trainer(tmp_path / "run", at_step=3)
    with mc.Trainer(tmp_path / "run", at_step=3, trust_code=True) as trainer:
        assert state_of(trainer) == recorded.states[3]
    assert contents(tmp_path / "run") == before


def test_a_run_that_started_from_weights_needs_them_before_its_first_checkpoint(
    tmp_path: Path, tiny_text: Path
) -> None:
    config = config_of(tiny_text, **{"train.steps": 4, "train.save_every": 2, "train.keep_last": 1})
    trained(config, tmp_path / "base")
    started = config.replace({"start.load_parameters_path": str(tmp_path / "base"), "train.seed": 3})
    recorded = trained(started, tmp_path / "run")
    with mc.Trainer(tmp_path / "run", at_step=3) as trainer:
        assert state_of(trainer) == recorded.states[3]
    shutil.rmtree(tmp_path / "base")
    with pytest.raises(UserError, match="base"):
        mc.Trainer(tmp_path / "run", at_step=3)
    with mc.Trainer(tmp_path / "run", at_step=4) as trainer:
        assert state_of(trainer) == recorded.states[4]


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, tiny_text: Path) -> None:
    recorded = trained(
        config_of(tiny_text, **{"train.save_every": 2, "train.keep_last": 0}), tmp_path / "run"
    )
    for file in (tmp_path / "run/checkpoints/step-4").glob("*.safetensors"):
        file.write_bytes(b"x")
    before = contents(tmp_path / "run")
    with mc.Trainer(tmp_path / "run", at_step=5) as trainer:
        assert state_of(trainer) == recorded.states[5]
    shutil.rmtree(tmp_path / "run/checkpoints/step-2")
    with pytest.raises(FormatError, match="no checkpoint verifies"):
        mc.Trainer(tmp_path / "run", at_step=5)
    del before[str(tmp_path / "run/checkpoints/step-2")]
    assert contents(tmp_path / "run").keys() <= before.keys()


def test_other_data_are_refused(tmp_path: Path, tiny_text: Path) -> None:
    text = tmp_path / "text"
    shutil.copytree(tiny_text, text)
    config = config_of(text, **{"data.cache_dir": str(tmp_path / "cache"), "train.steps": 4})
    trained(config, tmp_path / "run")
    shutil.rmtree(tmp_path / "cache")
    (text / "00.txt").write_text("other text")
    before = contents(tmp_path / "run")
    with pytest.raises(UserError, match="expected the text and tokenizer of the start of this run"):
        mc.Trainer(tmp_path / "run", at_step=4)
    assert contents(tmp_path / "run") == before


def test_a_run_in_a_storage_opens_at_its_newest_checkpoint(
    tmp_path: Path, tiny_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_bucket(monkeypatch)
    monkeypatch.chdir(tmp_path)
    recorded = trained(config_of(tiny_text, **{"train.save_every": 3}), "gs://bucket/run")
    shutil.rmtree(tmp_path / "runs")
    for step in (8, 2):
        with mc.Trainer("gs://bucket/run", at_step=step) as trainer:
            assert state_of(trainer) == recorded.states[step]


def test_a_checkpoint_that_only_the_storage_has_is_fetched(
    tmp_path: Path, tiny_text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    open_bucket(monkeypatch)
    monkeypatch.chdir(tmp_path)
    words = {"train.save_every": 2, "train.keep_last": 0, "train.log_every": 1}
    recorded = trained(config_of(tiny_text, **words), "gs://bucket/run")
    (local,) = (path.parent for path in (tmp_path / "runs").rglob("checkpoints"))
    logs = (local / "metrics.jsonl").read_bytes() + b'{"step": 8, "note": "only here"}\n'
    (local / "metrics.jsonl").write_bytes(logs)

    def at(step: int, left: set[int]) -> str:
        for one in {2, 4, 6} - left:
            shutil.rmtree(local / f"checkpoints/step-{one}", ignore_errors=True)
        capsys.readouterr()
        with mc.Trainer("gs://bucket/run", at_step=step) as trainer:
            assert state_of(trainer) == recorded.states[step]
        assert (local / "metrics.jsonl").read_bytes() == logs  # the logs of the storage may be older
        return capsys.readouterr().err

    assert "fetched step 4 from gs://bucket/run" in at(5, {2})
    assert "fetched" not in at(5, {2, 4}) and "fetched" not in at(1, {2})
    assert "fetched step 6" in at(7, set())
    assert {path.name for path in (local / "checkpoints").iterdir()} == {"step-6", "step-8"}


def test_updates_with_other_bits_are_announced(
    tmp_path: Path, tiny_text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    trained(config_of(tiny_text, **{"train.steps": 2, "mesh.any_world": True}), run)
    facts = (run / "run.json").read_text()
    events = (run / "events.jsonl").read_text()
    warning = "the updates here may have other bits than in the run: "

    def said(step: int = 1) -> str:
        capsys.readouterr()
        mc.Trainer(run, at_step=step).close()
        return capsys.readouterr().err

    assert warning not in said()
    (run / "run.json").write_text(json.dumps({**json.loads(facts), "fp32_order": 4}))
    assert f"{warning}its fp32 sums had another order (4 lanes" in said()
    (run / "run.json").write_text(json.dumps({**json.loads(facts), "bits_since": 2}))
    assert f"{warning}the run had other bits up to step 2" in said() and warning not in said(2)
    (run / "run.json").write_text(facts)
    (run / "events.jsonl").write_text(events + '{"event": "resumed", "step": 1, "ranks": 3}\n')
    assert f"{warning}with mesh.any_world its bits depend on its 3 ranks" in said()
