"""Runs whose frozen weights are bf16 or fp16: from files, resumed, read by commands, rounded on request."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mudd_core.checkpoint import dtypes, load_newest
from mudd_core.config import Config, DataConfig, EvalConfig, TrainConfig, TransformerPPConfig, from_dict
from mudd_core.config.fields import replace_path
from mudd_core.engine.model_shape import resolved_model
from mudd_core.run.build.stored_types import stored_in
from mudd_core.run.loop.trainer import Trainer
from rank_runs import on_ranks
from tiny_run import TinyRun

WORDS = ("train.steps=6", "train.save_every=0", "train.eval_every=0", "train.trainable=*.gain,head")


def types_in(run: TinyRun) -> dict[str, str]:
    found = load_newest(run.checkpoints)
    assert found is not None
    kinds = {name: dtypes.name_of(tensor.dtype) for name, tensor in found.stored.items()}
    return {name: kind for name, kind in kinds.items() if kind in ("BF16", "F16")}


@pytest.fixture(scope="module")
def base(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """Return a short fp32 run, from which the other runs start."""
    run = TinyRun(tmp_path_factory.mktemp("frozen") / "base", tiny_text, (*WORDS[1:3], "train.steps=2"))
    return run.trained()


@pytest.fixture(scope="module", params=["BF16", "F16"])
def started(request: pytest.FixtureRequest, base: TinyRun) -> tuple[str, str, TinyRun]:
    """Return (type in a file of 16-bit weights, the argument that starts from it, a finished run that did)."""
    import torch
    from safetensors.torch import save_file

    found = load_newest(base.checkpoints)
    assert found is not None
    kind = {"BF16": torch.bfloat16, "F16": torch.float16}[request.param]
    weights = {name: torch.from_numpy(array) for name, array in found.tensors.items() if "/" not in name}
    file = base.workdir.with_name(f"{request.param}.safetensors")
    save_file({name: tensor.to(kind) for name, tensor in weights.items() if tensor.is_floating_point()}, file)
    start = f"start.load_parameters_path={file}"
    run = TinyRun(base.workdir.with_name(f"run-{request.param}"), base.text, (*WORDS, start)).trained()
    return request.param, start, run


def test_a_run_keeps_the_types_of_the_file_and_the_numbers_of_fp32(
    started: tuple[str, str, TinyRun], tmp_path: Path
) -> None:
    kind, start, run = started
    assert "frozen parameters are stored in" in run.output and "were rounded" not in run.output
    assert "embed" in types_in(run) and set(types_in(run).values()) == {kind}
    assert not any("gain" in name or name == "head" for name in types_in(run))
    saved = from_dict(json.loads((run.workdir / "config.json").read_text()))
    theirs = replace_path(saved, "start.load_parameters_path", str(run.checkpoints / "6" / "items"))
    assert set(stored_in(theirs).of(resolved_model(saved, 257), theirs)) == set(types_in(run))
    wide = TinyRun(tmp_path / "wide", run.text, (*WORDS, start, "train.frozen_dtype=fp32"))
    wide.trained()
    assert not types_in(wide) and wide.rows() == run.rows()
    narrow, full = load_newest(run.checkpoints), load_newest(wide.checkpoints)
    assert narrow is not None and full is not None
    for name, array in narrow.tensors.items():
        assert np.array_equal(dtypes.as_float32(array), full.tensors[name]), name


def test_a_resume_keeps_types_and_bits(started: tuple[str, str, TinyRun], tmp_path: Path) -> None:
    kind, start, run = started
    broken = TinyRun(tmp_path / "broken", run.text, (*WORDS, start, "train.stop_at=3"))
    broken.stopped()
    resumed = TinyRun(tmp_path / "broken", run.text, (*WORDS, start)).finished()
    assert set(types_in(resumed).values()) == {kind}
    assert resumed.summary()["final_hash"] == run.summary()["final_hash"]
    plan = TinyRun(tmp_path / "broken", run.text, (*WORDS, start, "--plan"), log_suffix=".plan")
    assert plan.finish() == 0 and "are stored in" in plan.output, plan.tail


def test_the_commands_read_such_a_run(started: tuple[str, str, TinyRun], tmp_path: Path) -> None:
    from mudd_core.cli import main
    from mudd_core.run.build.saved_model import load_run
    from mudd_core.run.store.saved_run import named_run
    from mudd_core.tools.export_weights import command as export_command

    _, _, run = started
    cfg, path = named_run({"--workdir": str(run.workdir)}, [])
    _, model, step = load_run(cfg, path)
    assert step == 6 and model.store.describe("embed")["stored"] != "float32"
    assert len(list(model.generate(np.arange(5, dtype=np.int32), max_tokens=3))) == 3
    assert main(["validate", f"--workdir={run.workdir}"]) == 0
    assert export_command.main([f"--workdir={run.workdir}", f"--to={tmp_path / 'out'}"]) == 0
    assert json.loads((tmp_path / "out" / "config.json").read_text())
    again = TinyRun(tmp_path / "next", run.text, (*WORDS, f"start.load_parameters_path={run.workdir}"))
    again.trained()
    assert types_in(again) == types_in(run)


def test_a_type_that_rounds_says_so(base: TinyRun, tmp_path: Path) -> None:
    words = (*WORDS, f"start.load_parameters_path={base.workdir}")
    run = TinyRun(tmp_path / "run", base.text, (*words, "train.frozen_dtype=fp16"))
    run.trained()
    assert "frozen weights were rounded (train.frozen_dtype=fp16)" in run.output
    assert set(types_in(run).values()) == {"F16"}
    fresh = TinyRun(tmp_path / "fresh", base.text, (*WORDS, "train.frozen_dtype=bf16"))
    fresh.trained()
    assert "initial values are rounded" in fresh.output and set(types_in(fresh).values()) == {"BF16"}


def test_two_ranks_save_and_resume_what_one_process_has(tiny_text: Path, tmp_path: Path) -> None:
    def train(name: str, stop_at: int = 0) -> Callable[[Any], tuple[str, int]]:
        asked = Config(
            name="test",
            model=TransformerPPConfig(d_model=32, n_layer=2, n_head=2, d_ff=64),
            data=DataConfig(
                path=str(tiny_text), cache_dir=str(tiny_text.parent / "cache"), tokenizer="bytes"
            ),
            train=TrainConfig(
                steps=4,
                batch_size=4,
                seq_len=16,
                threads=1,
                stop_at=stop_at,
                trainable="*.gain,head",
                frozen_dtype="fp16",
            ),
            eval=EvalConfig(max_batches=1),
        )

        def run(comm: Any) -> tuple[str, int]:
            with Trainer(asked, tmp_path / name, comm=comm) as trainer:
                summary = trainer.fit()
                return summary.final_hash, summary.step

        return run

    alone = train("one")(None)
    assert on_ranks(train("two", stop_at=2), 2)[0][1] == 2
    assert on_ranks(train("two"), 2) == [alone, alone]
    found = load_newest(tmp_path / "two" / "checkpoints")
    assert found is not None and found.stored["embed"].dtype == np.float16
