"""Frozen matrices of a base that stay in its file: equal bits, no extra memory, and an unchanged file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from hf_models import make
from mudd_core.checkpoint import whole_parts
from mudd_core.config import Config, LoraConfig, StartConfig, TrainConfig, TuneConfig
from mudd_core.engine.lora import is_adapter
from mudd_core.run.build.base import load_base
from mudd_core.run.build.planned_model import plan_model
from mudd_core.run.build.stored_types import StoredTypes
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.json_files import read_saved_config
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.tools.import_weights import command as import_command
from rank_runs import batch_of

pytestmark = pytest.mark.filterwarnings("ignore:.*not a checkpoint of mudd_core")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the base of `tune`, read from a bf16 folder of transformers; its embedding is also its head."""
    folder = tmp_path_factory.mktemp("lent")
    make("llama_tied", folder / "hf").to(torch.bfloat16).save_pretrained(folder / "hf")
    words = [str(folder / "hf"), f"--workdir={folder / 'base'}", "--tokenizer=bytes"]
    assert import_command.main(words, is_base=True) == 0
    return folder / "base"


def config_of(base: Path, precision: str = "fp32", recompute: bool = False, **lora: Any) -> Config:
    return Config(
        model=read_saved_config(RunFolder(base)).model,
        train=TrainConfig(
            batch_size=4, seq_len=16, logical_shards=4, precision=precision, recompute=recompute
        ),
        start=StartConfig(load_parameters_path=str(base)),
        tune=TuneConfig(method="lora"),
        lora=LoraConfig(rank=4, **lora),
    )


def trained(config: Config) -> tuple[mc.Model, Any]:
    """Return the model and the engine after three updates."""
    model, engine, _ = plan_model(config.model, config)
    model.store.initialize(config.train.seed)
    load_base(config, model, None).settle(model, fresh=True)
    for step in range(3):
        engine.train_step(step, 1e-2, batch_of(config, step))
    return model, engine


def files_of(base: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(base.rglob("*.safetensors"))}


@pytest.mark.parametrize(
    ("precision", "recompute"), [("fp32", False), ("fp32", True), ("bf16", False), ("bf16", True)]
)
def test_lent_weights_have_the_bits_of_copies(
    base: Path, precision: str, recompute: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, before = config_of(base, precision, recompute), files_of(base)
    model, engine = trained(config)
    store, report = model.store, engine.memory_report()
    matrices = [name for name in store.names() if store.describe(name)["stored"] == "bfloat16"]
    assert set(store.lent) == set(matrices) and "embed" in matrices and len(matrices) == 15
    size = 2 * sum(model.parameters[name].size for name in matrices)
    kept = not recompute  # with so few tokens; in fp32 many weights are packed only when they are used
    assert report.get("mapped", 0) == (0 if kept else size) and (report["packed"] >= 2 * size) == kept
    assert kept or report["packed"] == 0
    planned = plan_model(config.model, config, only=True)[2]
    assert all(planned[kind] == count for kind, count in report.items())
    monkeypatch.setattr(StoredTypes, "lent", lambda *_: {})
    copied, other = trained(config)
    assert not copied.store.lent and other.memory_report()["weights"] >= report["weights"] + size
    assert all(np.array_equal(copied.parameters[name], value) for name, value in model.parameters.items())
    assert any(value.any() for name, value in model.parameters.items() if name.endswith("lora_b"))
    assert files_of(base) == before


def test_what_is_written_stays_out_of_the_file(base: Path) -> None:
    before = files_of(base)
    model, _ = trained(config_of(base))
    name = "blocks.0.attn.q.w"
    old = model.parameters[name]
    model.set_parameter(name, np.zeros_like(old))
    assert old.any() and not model.parameters[name].any() and files_of(base) == before


def test_pissa_takes_copies(base: Path) -> None:
    before = files_of(base)
    model, engine = trained(config_of(base, init="pissa"))
    assert not model.store.lent and "mapped" not in engine.memory_report() and files_of(base) == before


def test_a_step_that_is_passed_over_lends_nothing(base: Path, tmp_path: Path) -> None:
    run = tmp_path / "base"
    shutil.copytree(base, run)
    steps = run / "checkpoints"
    want, _ = trained(config_of(run))
    old = mc.checkpoint.load_step(steps, 0, into=())
    mc.checkpoint.save(
        steps, 1, whole_parts(old.stored), old.state, config_hash=old.config_hash, run_id=old.run_id
    )
    place = Checkpoints(RunFolder(run)).stored(1)["blocks.0.attn.q.w"].place
    assert place is not None
    with place.file.open("r+b") as file:
        file.seek(place.begin)
        file.write(bytes(64))
    model, _ = trained(config_of(run))
    names = [name for name in want.parameters if not is_adapter(name)]
    assert all(np.array_equal(model.parameters[name], want.parameters[name]) for name in names)
