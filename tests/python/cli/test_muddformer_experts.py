"""MUDDFormer with experts from the command line: config, a run and its commands, memory, saved configs."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import mudd_core as mc
from mudd_core.cli import main
from mudd_core.config import MixtralConfig, MUDDFormerConfig, config_hash, from_dict, to_dict
from mudd_core.config.families.experts import ExpertFields
from mudd_core.config.fields import walk
from mudd_core.engine import expert_load
from mudd_core.engine.flops import flops_per_token
from mudd_core.run.store.metrics import read_rows
from places import ROOT

sys.path[:0] = [str(ROOT / "bench")]

import bench_memory  # noqa: E402
from near import PLANNED  # noqa: E402

EXPERTS = {field.name for field in dataclasses.fields(ExpertFields)}
RUN = (
    "--config=muddformer/tiny.py",
    "model.n_layer=2",
    "model.d_model=32",
    "model.n_head=2",
    "model.d_ff=40",
    "model.prenorm=true",
    "model.postnorm=true",
    "model.n_expert=4",
    "train.steps=4",
    "train.batch_size=4",
    "train.seq_len=32",
    "train.log_every=1",
    "train.eval_every=0",
    "data.tokenizer=bytes",
)


def test_the_config_has_the_sizes_of_the_article() -> None:
    config = mc.load_config("muddformer/405m_moe.py")
    model = config.model
    assert isinstance(model, MUDDFormerConfig)
    assert (model.n_layer, model.d_model, model.n_head, model.d_ff) == (24, 1024, 16, 1408)
    assert (model.n_expert, model.top_k, model.capacity_factor, model.aux_coef) == (16, 2, 0.0, 0.0)
    assert {model.ffn_width(layer) for layer in range(24)} == {1408}
    # The paper says 26 billion tokens.
    assert config.train.steps * config.train.batch_size * config.train.seq_len == pytest.approx(
        26e9, rel=1e-4
    )


def test_only_active_experts_count_as_flops() -> None:
    """Compare two active experts of width 1,408 with a dense layer of 2,816; only the routers add FLOPs."""
    mixture, dense = (mc.load_config(f"muddformer/{name}").model for name in ("405m_moe", "405m"))
    routers = 6.0 * 24 * 1024 * 16
    assert flops_per_token(mixture, 50432, 2048) == flops_per_token(dense, 50432, 2048) + routers


def test_an_underused_expert_is_an_alarm() -> None:
    model = MUDDFormerConfig(n_layer=1, n_expert=4)
    load = expert_load.for_model(model, 8)
    assert load is not None and expert_load.for_model(MUDDFormerConfig(), 8) is None
    metrics = np.zeros(19)
    metrics[:4] = metrics[8:12] = [8, 4, 4, 0]  # tokens routed to each expert, and tokens kept
    for step in range(expert_load.WINDOW):
        load.add_step(step, metrics)
    assert load.alarms() == ["layer 0 expert 3 at 0.00 of even load"]


def test_inner_widths_of_experts_never_grow() -> None:
    for realloc in (True, False):
        model = MUDDFormerConfig(d_ff=40, n_layer=1, n_expert=4, ffn_realloc=realloc)
        assert not model.faults() and model.ffn_width(0) == 40


def test_a_dense_config_that_was_saved_before_keeps_its_hash() -> None:
    config = mc.load_config("muddformer/tiny")
    assert not {info.path for info in walk(config.model) if info.hashed} & EXPERTS
    saved = to_dict(config)
    for name in EXPERTS:
        del saved["model"][name]
    assert from_dict(saved) == config
    mixture = dataclasses.replace(config, model=dataclasses.replace(config.model, n_expert=4))
    assert config_hash(mixture) != config_hash(config)
    assert {info.path for info in walk(MixtralConfig()) if info.hashed} >= EXPERTS


@pytest.fixture(scope="module")
def trained(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the work directory of a finished run."""
    folder = tmp_path_factory.mktemp("experts")
    words = [*RUN, f"data.path={tiny_text}", f"data.cache_dir={folder / 'cache'}"]
    assert main([*words, f"--workdir={folder / 'run'}"]) == 0
    return folder / "run"


def test_a_run_logs_loads_and_entropies(trained: Path) -> None:
    rows = [row for row in read_rows(trained / "metrics.jsonl") if "loss" in row]
    assert len(rows) == 4
    for row in rows:
        assert np.shape(row["expert_load"]) == (2, 4) and np.mean(row["expert_load"]) == pytest.approx(1)
        assert not np.any(row["expert_dropped"])
        # The code computes the logarithm in float32.
        assert all(0 < entropy <= np.log(4) + 1e-6 for entropy in row["router_entropy"])
        assert row["aux_loss"] == 0  # the command sets no coefficient


def test_the_commands_read_such_a_run(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["weights", f"--workdir={trained}", "--windows=2"]) == 0
    with h5py.File(trained / "weights" / "step-4" / "weights.h5") as h5:
        assert (h5.attrs["layers"], h5.attrs["streams"], h5.attrs["states"]) == (2, 4, 3)
        assert np.isfinite(h5["dynamic_mean"][:].reshape(2, 4, 3)[0, :, :2]).all()
    assert main(["sample", f"--workdir={trained}", "--prompt=def ", "sample.max_tokens=4"]) == 0
    assert main(["validate", f"--workdir={trained}"]) == 0
    assert main(["report", f"--workdir={trained}"]) == 0
    capsys.readouterr()


def test_export_and_grow_refuse_it_by_name(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refusals = {
        "muddformer_jax": "n_expert: expected 0, the program's block has no experts, got 4",
        "hf": "got 'muddformer'",
    }
    for system in refusals.keys() & set(mc.interop.systems()):
        words = [f"--workdir={trained}", f"--to={tmp_path / system}", f"--system={system}"]
        assert main(["export", *words]) == 2
        assert refusals[system] in capsys.readouterr().err and not (tmp_path / system).exists()
    cache = json.loads((trained / "config.json").read_text())["data"]["cache_dir"]
    words = [f"--config={trained / 'config.json'}", f"--from={trained}", f"--workdir={tmp_path / 'grown'}"]
    assert main(["grow", *words, f"data.cache_dir={cache}"]) == 2
    assert "expected a TokenFormer, got muddformer" in capsys.readouterr().err


def test_the_parameter_table_has_routers_and_experts(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([f"--config={trained / 'config.json'}", f"--workdir={trained}", "--params"]) == 0
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line}
    assert "router" in rows["blocks.1.ffn.router.w"] and rows["blocks.1.ffn.router.w"][-1] == "0.1"
    assert rows["blocks.1.ffn.down.w"][1:6] == ["4", "x", "40", "x", "32"]


def test_the_plan_predicts_memory_within_a_tenth(tiny_text: Path, tmp_path: Path) -> None:
    words = [
        "--config=muddformer/tiny.py",
        "model.vocab_size=1024",
        "model.d_model=384",
        "model.n_layer=3",
        "model.n_head=6",
        "model.d_ff=384",
        "model.n_expert=8",
        "train.batch_size=8",
        "train.seq_len=64",
        "train.micro_batch_size=2",
        "train.recompute=true",
        "optim.lr=1e-4",
    ]
    predicted, real = bench_memory.measure(words, tiny_text, tmp_path)
    assert predicted == pytest.approx(real, rel=PLANNED)
