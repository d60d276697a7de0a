"""sow_intermediates and sow_param_info: the statistics of mu-Transformer in metrics, TensorBoard and the tracker."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from document_sizes import OF_MU_TRANSFORMER
from event_files import tags_of
from mudd_core.config import Config, load_config
from mudd_core.engine.model import Model
from mudd_core.run.loop.trainer import Trainer
from near import STORED
from places import ROOT

ACTIVATIONS = ("ax", "aq", "ak", "av", "aqr", "akr", "as", "ap", "ao", "ar", "fx", "fh", "fa", "fr")
BY_LAYER = ("w_aq", "w_ak", "w_av", "w_ao", "w_fi", "w_fo")
PLAIN = {"uu_w_e", "uu_w_u"} | {f"uu_{name}_{layer:02d}" for name in BY_LAYER for layer in (0, 1)}
SOWN = {f"{name}_l1_{layer:02d}" for name in ACTIVATIONS for layer in (0, 1)}


def of_run(text: Path, workdir: Path, *words: str) -> Path:
    """Train in a separate process, as the command line does, and return the folder of the run."""
    sizes = [f"--config.{word}" for word in OF_MU_TRANSFORMER.replace("n_layer=1", "n_layer=2").split()]
    command = [
        "launch.py",
        "--config=mu_transformer/configs/small.py",
        "--mode=train",
        f"--workdir={workdir}",
        *words,
    ]
    own = [
        f"data.path={text}",
        "data.tokenizer=bytes",
        f"data.cache_dir={text.parent / 'cache'}",
        "train.threads=1",
    ]
    done = subprocess.run(
        [sys.executable, *command, *sizes, *own], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (run,) = workdir.iterdir()
    return run


def test_a_command_writes_them_at_the_logged_steps_and_changes_no_bit(
    tiny_text: Path, tmp_path: Path
) -> None:
    words = ("--config.sow_intermediates=True", "--config.sow_param_info=True")
    run, without = of_run(tiny_text, tmp_path / "a", *words), of_run(tiny_text, tmp_path / "b")
    hashes = [json.loads((folder / "summary.json").read_text())["final_hash"] for folder in (run, without)]
    assert hashes[0] == hashes[1]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "loss" in row]
    assert [row["step"] for row in rows] == [2, 4]
    assert all(
        {name for name in row if "_l1_" in name or name.startswith("uu_")} == SOWN | PLAIN for row in rows
    )
    tags, bare = tags_of(run / "tensorboard"), tags_of(without / "tensorboard")
    assert tags.keys() - bare.keys() == SOWN | PLAIN and bare.keys() <= tags.keys()
    for name in SOWN | PLAIN:
        assert tags[name] == pytest.approx({row["step"]: row[name] for row in rows}, rel=STORED)


@pytest.mark.parametrize(("key", "names"), [("sow_intermediates", SOWN), ("sow_param_info", PLAIN)])
def test_each_key_writes_its_own(key: str, names: set[str], tiny_text: Path, tmp_path: Path) -> None:
    run = of_run(tiny_text, tmp_path, f"--config.{key}=True")
    row = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])
    assert {name for name in row if "_l1_" in name or name.startswith("uu_")} == names


def small(**model: object) -> Config:
    words = [
        "d_model=16",
        "d_head=8",
        "qk_scale=0.125",
        "n_layer=2",
        "vocab_size=257",
        "max_seq_len=16",
        "d_base=8",
    ]
    config = load_config("mup/small.py", ["train.seq_len=16", *(f"model.{word}" for word in words)])
    train = dataclasses.replace(
        config.train, steps=2, batch_size=4, seq_len=16, logical_shards=4, log_every=1, precision="fp32"
    )
    log = dataclasses.replace(config.log, weights=True, activations=True)
    return dataclasses.replace(config, train=train, log=log, model=dataclasses.replace(config.model, **model))


@pytest.mark.parametrize("inner", ["relu", "swiglu"])
def test_values_are_means_over_the_batch_and_changes_over_rates(inner: str) -> None:
    config = small(ff_act_name=inner, proj_biases=True, norm_gains=True)
    ids = np.random.default_rng(0).integers(0, 257, (4, 17)).astype(np.int32)
    with Trainer(config, model=Model(config.model)) as trainer:
        weights = trainer.model.parameters
        before = {name: np.array(value, np.float64) for name, value in weights.items()}
        record = trainer.step({"inputs": ids[:, :-1].copy(), "targets": ids[:, 1:].copy()})
        change = {name: np.abs(weights[name] - before[name]) for name in before}
        found, lr = record.statistics, record.lr
    h = before["embed"][ids[:, :-1]]
    x = h / np.sqrt(np.square(h).mean(-1, keepdims=True) + 1e-5)
    # NumPy computes the means of float32 in another order.
    assert found["ax_l1_00"] == pytest.approx(np.abs(x).mean(), rel=1e-5)
    for name in "qkv":
        want = np.abs(x @ before[f"blocks.0.attn.{name}.w"]).mean()
        # NumPy computes the means of float32 in another order.
        assert found[f"a{name}_l1_00"] == pytest.approx(want, rel=1e-4)
    assert found["uu_w_e"] == pytest.approx(change["embed"].mean() / lr, rel=1e-5)
    assert found["uu_w_aq_01"] == pytest.approx(change["blocks.1.attn.q.w"].mean() / (lr / 2), rel=1e-5)
    assert found["uu_g_f_01"] == pytest.approx(change["blocks.1.ffn.norm.gain"].mean() / lr, rel=1e-5)
    stacked = [change[f"blocks.{layer}.attn.q.b"] for layer in (0, 1)]  # the original does not split biases
    assert found["uu_b_aq"] == pytest.approx(np.mean(stacked) / lr, rel=1e-5)
    names = ("up", "gate") if inner == "swiglu" else ("up",)
    halves = [change[f"blocks.0.ffn.{name}.w"] for name in names]
    # NumPy computes the means of float32 in another order.
    assert found["uu_w_fi_00"] == pytest.approx(np.mean(halves) / (lr / 2), rel=1e-5)


def test_without_positions_nothing_is_rotated() -> None:
    ids = np.zeros((4, 17), np.int32)
    config = small(rotary_base=0.0)
    with Trainer(config, model=Model(config.model)) as trainer:
        record = trainer.step({"inputs": ids[:, :-1].copy(), "targets": ids[:, 1:].copy()})
    assert "aq_l1_00" in record.statistics and not any(name.startswith("aqr") for name in record.statistics)
