"""Runs that train adapters for a base on disk: files, resumes, commands that read them, and rejected settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from exported_files import exported_files
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.engine.frozen import trained_note
from rank_runs import by_threads, config_of, without_time
from tiny_run import TinyRun

SHORT = {"train.steps": 4, "train.save_every": 2, "train.eval_every": 0, "optim.warmup_steps": 1}
LORA = {"tune.method": "lora", "lora.rank": 4, "lora.alpha": 8, "lora.dropout": 0.1, "train.steps": 6}


def trained(text: Path, workdir: Path, **fields: Any) -> str:
    """Return the final hash of a run in this process; empty if the run was stopped."""
    with mc.Trainer(config_of(text, **{**SHORT, **fields}), workdir) as trainer:
        trainer.fit()
        return trainer.final_hash()


def lora(base: Path, **fields: Any) -> dict[str, Any]:
    return {**LORA, "start.load_parameters_path": str(base), **fields}


@pytest.fixture(scope="module")
def base(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora") / "base"
    trained(tiny_text, folder)
    return folder


def test_commands_on_a_run_of_adapters(base: Path, tiny_text: Path, tmp_path: Path) -> None:
    words = tuple(f"{name}={value}" for name, value in {**SHORT, **lora(base)}.items())
    run = TinyRun(tmp_path / "run", tiny_text, words).trained()
    assert f"adapters of the base {base}" in run.output and "(tune.method=lora)" in run.output
    manifest = json.loads((run.checkpoints / "step-6" / "manifest.json").read_text())
    names = {name.rpartition("/")[2] for name in manifest["tensors"]} - {"count"}
    assert names and all(name.endswith(("lora_a", "lora_b")) for name in names)
    sha256 = manifest["state"]["base"]["sha256"]
    assert sha256 == json.loads((run.workdir / "run.json").read_text())["base_sha256"]
    assert sha256 == json.loads((base / "summary.json").read_text())["final_hash"]
    for command, told in (("validate", "step 6: validation loss"), ("sample", "")):
        asked = TinyRun(run.workdir, tiny_text, (f"--mode={command}",), log_suffix=f".{command}")
        assert asked.finish_here() == 0 and told in asked.output, asked.tail
    bad = TinyRun(tmp_path / "bad", tiny_text, (*words, "lora.targets=q_proj"))
    assert bad.finish_here() == 2 and "the model has q, k, v, o, gate, up, down" in bad.output, bad.tail


@pytest.fixture(scope="module")
def adapted(base: Path, tiny_text: Path) -> list[str]:
    """Return the arguments that select a run of adapters and its data."""
    run = base.parent / "adapted"
    trained(tiny_text, run, **lora(base))
    return [f"--workdir={run}", f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'cache'}"]


@pytest.mark.parametrize(("mesh", "node"), [((), 2), (("mesh.zero=3",), 1)])
@pytest.mark.parametrize("words", [("validate",), ("sample", "--prompt=ma", "sample.max_tokens=8")])
def test_ranks_print_what_one_process_prints(
    adapted: list[str],
    words: tuple[str, ...],
    mesh: tuple[str, ...],
    node: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = [*words, *adapted]
    assert main(asked) == 0
    wanted = capsys.readouterr()
    assert by_threads([*asked, *mesh], 2, node) == [0, 0]
    found = capsys.readouterr()
    assert without_time(found.out) == without_time(wanted.out) and wanted.out
    assert found.err == wanted.err


EXPORTS = {
    "hf": (),
    "own": ("--system=own",),
    "own merged": ("--system=own", "--merged"),
    "adapter": ("--adapter", "--base=hub/name"),
}


@pytest.mark.parametrize(("mesh", "world", "node"), [((), 2, 2), (("mesh.zero=3",), 4, 1)])
@pytest.mark.parametrize("form", EXPORTS)
def test_an_export_by_ranks_has_the_files_of_one_process(
    adapted: list[str],
    tmp_path: Path,
    form: str,
    mesh: tuple[str, ...],
    world: int,
    node: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["export", adapted[0], adapted[2], *EXPORTS[form]]
    assert main([*words, f"--to={tmp_path / 'one'}"]) == 0
    assert by_threads([*words, f"--to={tmp_path / 'many'}", *mesh], world, node) == [0] * world
    said = capsys.readouterr().out.splitlines()
    half = len(said) // 2
    assert [line.replace("one", "") for line in said[:half]] == [
        line.replace("many", "") for line in said[half:]
    ]
    one, many = (exported_files(tmp_path / name) for name in ("one", "many"))
    assert one == many and len(one) > 1


def test_a_resume_has_the_same_bits_and_takes_a_base_that_was_moved(
    base: Path, tiny_text: Path, tmp_path: Path
) -> None:
    want = trained(tiny_text, tmp_path / "straight", **lora(base))
    trained(tiny_text, tmp_path / "run", **{**lora(base), "train.stop_at": 3})
    moved = base.rename(tmp_path / "moved")
    try:
        with pytest.raises(UserError, match="does not exist"):
            trained(tiny_text, tmp_path / "run", **lora(base))
        assert trained(tiny_text, tmp_path / "run", **lora(moved)) == want
        inside = moved.rename(tmp_path / "straight" / base.name)  # the run's own folder contains it
        model = mc.load(tmp_path / "straight").model
        inside.rename(moved)
        assert model.lora is not None and len(list(model.generate([5], max_tokens=3))) == 3
    finally:
        moved.rename(base)


@pytest.mark.parametrize("kind", ["fp32", "bf16"])
def test_pissa_begins_with_the_base(base: Path, tiny_text: Path, tmp_path: Path, kind: str) -> None:
    fields = lora(base, **{"lora.init": "pissa", "train.frozen_dtype": kind, "lora.dropout": 0.0})
    with mc.Trainer(config_of(tiny_text, **{**SHORT, **fields}), tmp_path / "new") as trainer:
        model, whole = trainer.model, mc.load(base).model
        name = "blocks.0.attn.q"
        u, s, v = np.linalg.svd(whole.parameters[f"{name}.w"].astype(np.float64))
        low = model.lora.scale * model.parameters[f"{name}.lora_a"] @ model.parameters[f"{name}.lora_b"]
        # NumPy's SVD uses float64, the adapters are float32.
        assert np.abs(low - (u[:, :4] * s[:4]) @ v[:4]).max() < 1e-5 * s[0]
        far = np.abs(model.logits([5, 6, 7]) - whole.logits([5, 6, 7])).max()
        assert far < (1e-5 if kind == "fp32" else 0.05)
    want = trained(tiny_text, tmp_path / "straight", **fields)
    assert want != trained(tiny_text, tmp_path / "default", **lora(base))
    loaded = mc.load(tmp_path / "straight").model
    with mc.Trainer(config_of(tiny_text, **{**SHORT, **fields}), tmp_path / "straight") as trainer:
        assert np.array_equal(loaded.logits([5, 6, 7]), trainer.model.logits([5, 6, 7]))


def test_adapters_of_a_run_are_trained_further(base: Path, tiny_text: Path, tmp_path: Path) -> None:
    trained(tiny_text, tmp_path / "first", **lora(base))
    fields = lora(base, **{"lora.start_from": str(tmp_path / "first")})
    with mc.Trainer(config_of(tiny_text, **{**SHORT, **fields}), tmp_path / "second") as trainer:
        for name, value in mc.load(tmp_path / "first").model.parameters.items():
            assert np.array_equal(trainer.model.parameters[name], value), name
    want = trained(tiny_text, tmp_path / "straight", **fields)
    trained(tiny_text, tmp_path / "second", **{**fields, "train.stop_at": 3})
    (tmp_path / "first").rename(tmp_path / "away")
    assert trained(tiny_text, tmp_path / "second", **fields) == want
    for number, (changed, told) in enumerate(
        (
            ({}, r"\[config\] lora.start_from: expected initial adapters, .* does not exist"),
            (
                {"lora.start_from": str(base)},
                r"lora.start_from: expected '.*lora_a' of shape \[.*\] in .*, got none",
            ),
            (
                {"lora.start_from": str(tmp_path / "away"), "lora.rank": 3},
                r"of shape \[32, 3\] in .*, got \[32, 4\]",
            ),
            ({"lora.init": "pissa"}, "lora.start_from: lora.init=pissa computes adapters from the base"),
        )
    ):
        with pytest.raises(UserError, match=told):
            trained(tiny_text, tmp_path / f"bad{number}", **{**fields, **changed})


def test_another_base_is_refused(base: Path, tiny_text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained(tiny_text, run, **{**lora(base), "train.stop_at": 1})
    other = tmp_path / base.name
    trained(tiny_text, other, **{"train.steps": 1, "train.seed": 9})
    with pytest.raises(UserError, match="made with another base_sha256"):
        trained(tiny_text, run, **lora(other))
    with pytest.raises(UserError, match=r"contain only adapters; name its base, .*/base"):
        trained(tiny_text, tmp_path / "chained", **lora(run))
    away = base.rename(tmp_path / "away")
    try:
        other.rename(run / base.name)
        with pytest.raises(UserError, match=r"expected the base of these adapters, .*/base \(SHA-256"):
            _ = mc.load(run).model
    finally:
        away.rename(base)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"lora.rank": 0}, "lora.rank: expected at least 1, got 0"),
        ({"lora.dropout": 1.0}, "lora.dropout: expected less than 1"),
        ({"lora.targets": " ,"}, "lora.targets: expected all, or names"),
        ({"tune.method": "last:3"}, "expected at most last:2"),
        ({"tune.method": "lorra"}, "expected lora, full or last:N"),
        ({"start.load_parameters_path": ""}, "expected the base model of the adapters"),
        ({"lora.init": "pissa", "mesh.zero": 3}, "pissa needs whole matrices"),
        ({"train.trainable": "head"}, "tune.method=lora already selects the parameters to train"),
        ({"start.keep_optimizer": True}, "loads weights only"),
    ],
)
def test_bad_settings_are_named(base: Path, tiny_text: Path, fields: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        mc.Trainer(config_of(tiny_text, **{**SHORT, **lora(base), **fields}))


def test_a_given_model_with_adapters_is_refused(base: Path, tiny_text: Path) -> None:
    config = config_of(tiny_text, **{**SHORT, **lora(base)})
    model = mc.Model(config)
    with pytest.raises(UserError, match="expected none for adapters"):
        mc.Trainer(config, model=model)


def test_last_blocks_train_alone(base: Path, tiny_text: Path, tmp_path: Path) -> None:
    config = config_of(tiny_text, **{**SHORT, **lora(base), "tune.method": "last:1", "train.steps": 2})
    with mc.Trainer(config, tmp_path / "last") as trainer:
        trainer.fit()
        assert trained_note(trainer.model.store, config.tune).endswith(
            "parameters train (tune.method=last:1)"
        )
    manifest = json.loads((tmp_path / "last" / "checkpoints" / "step-2" / "manifest.json").read_text())
    names = {name.partition("/")[2] for name in manifest["tensors"] if "moment/" in name}
    assert names and all(name.startswith("blocks.1.") for name in names)
