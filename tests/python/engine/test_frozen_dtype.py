"""Frozen weights in bf16 or fp16 (train.frozen_dtype): bits equal to their fp32 copies; memory, state, errors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from both_executors import in_both_executors
from loss_goldens import levels
from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.checkpoint import dtypes, final_hash, whole_parts
from mudd_core.config import Config, OptimConfig, TrainConfig, TransformerPPConfig, config_hash
from mudd_core.engine.engine import Engine
from mudd_core.engine.frozen import frozen_types
from mudd_core.engine.model import Model
from mudd_core.run.loop.trainer import Trainer
from places import HELPERS, TESTS
from rank_runs import batch_of, on_ranks
from small_models import CASES, make, make_batch

BATCH, LENGTH = 4, 9
PARTS = ("matrices", "half")


def config(case: str, patterns: str, frozen_dtype: str = "stored", **train: Any) -> Config:
    return Config(
        name="test",
        model=CASES[case][0],
        train=TrainConfig(
            steps=10,
            batch_size=BATCH,
            seq_len=LENGTH,
            trainable=patterns,
            frozen_dtype=frozen_dtype,
            **train,
        ),
        optim=OptimConfig(lr=1e-2, decay="all"),
    )


def trained(case: str, frozen: str) -> str:
    """Return patterns that freeze all matrices, or every second one."""
    shapes = {name: view.shape for name, view in make(case)[0].parameters.items()}
    matrices = [name for name, shape in shapes.items() if len(shape) > 1]
    chosen = [name for name in shapes if name not in matrices]
    return ",".join(chosen + matrices[1::2] if frozen == "half" or not chosen else chosen)


def twins(case: str, frozen: str, kind: str, precision: str = "fp32") -> tuple[Engine, Engine]:
    """Return engines with frozen weights in 16 bits, and with fp32 masters of the same values."""
    params = make(case)[2]
    cfg = CASES[case][0]
    asked = config(case, trained(case, frozen), kind, precision=precision)
    types = frozen_types(Model(cfg, booked_only=True).store, asked, {}, resumed=False)
    assert types
    narrow = Model(cfg, initialize=False, precision=precision, stored=types)
    wide = Model(cfg, initialize=False, precision=precision)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning that values are rounded
        for name, value in params.items():
            narrow.set_parameter(name, value)
    for name, value in narrow.parameters.items():
        wide.set_parameter(name, value)
        assert np.array_equal(wide.parameters[name], value)
    return Engine(asked, narrow), Engine(asked, wide)


def equal_training(case: str, frozen: str, kind: str, precision: str) -> None:
    narrow, wide = twins(case, frozen, kind, precision)
    vocab = CASES[case][0].vocab_size
    for step in range(2):
        batch = make_batch(vocab, BATCH, LENGTH, seed=step)
        got, want = (engine.train_step(step, 1e-2, batch) for engine in (narrow, wide))
        assert (got.loss, got.grad_norm) == (want.loss, want.grad_norm)
    for name, value in narrow.model.parameters.items():
        assert np.array_equal(value, wide.model.parameters[name]), name
    ids = make_batch(vocab, 1, LENGTH, seed=5)["inputs"]
    assert np.array_equal(narrow.model.logits(ids), wide.model.logits(ids))
    loss, _ = in_both_executors(narrow.model, batch, shards=2)
    assert loss == wide.model.loss_and_gradients(batch, shards=2)[0]
    tokens = [list(engine.model.generate(ids[0], max_tokens=5)) for engine in (narrow, wide)]
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["bf16", "fp16"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("frozen", PARTS)
def test_training_equals_that_of_fp32_masters_with_these_values(
    case: str, kind: str, precision: str, frozen: str
) -> None:
    equal_training(case, frozen, kind, precision)


# The tests above cover the level of this process.
@pytest.mark.parametrize("level", [level for level in levels() if level != _core.isa()])
def test_training_equals_that_of_fp32_masters_at_every_level(level: str) -> None:
    """Run in separate processes, because kernels are chosen once. An emulation has separate kernels only for bf16."""
    precisions = ["bf16"] if level.startswith("emu_") else ["fp32", "bf16"]
    code = (
        "import test_frozen_dtype as t\n"
        f"for precision in {precisions}:\n"
        "    for case, kind in ('llama_gqa', 'bf16'), ('mudd', 'fp16'), ('tokenformer', 'fp16'), ('mixtral', 'bf16'):\n"
        "        t.equal_training(case, 'half', kind, precision)\n"
    )
    path = os.pathsep.join(
        [str(Path(__file__).parent), str(HELPERS), str(TESTS), os.environ.get("PYTHONPATH", "")]
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **levels()[level], "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-4000:]


@pytest.mark.parametrize("kind", ["bf16", "fp16"])
def test_frozen_weights_take_half_the_memory(kind: str) -> None:
    narrow, wide = twins("llama_gqa", "matrices", kind)
    sizes = {name: (view.size + 15) // 16 * 16 for name, view in wide.model.parameters.items()}
    vectors = sum(sizes[name] for name in sizes if "gain" in name)
    matrices = sum(sizes.values()) - vectors
    assert wide.memory_report()["weights"] == 4 * (matrices + vectors)
    assert narrow.memory_report()["weights"] == 2 * matrices + 4 * vectors
    assert narrow.memory_report()["moments"] == wide.memory_report()["moments"] == 8 * vectors
    assert narrow.memory_report()["gradients"] == wide.memory_report()["gradients"]


@pytest.mark.parametrize("kind", ["bf16", "fp16"])
def test_the_state_holds_the_words_and_is_taken_over_as_it_is(kind: str) -> None:
    narrow, _ = twins("llama_gqa", "matrices", kind)
    tensors = {name: np.array(value) for name, value in narrow.state_tensors().items()}
    dtype = dtypes.BF16 if kind == "bf16" else np.dtype(np.float16)
    assert tensors["embed"].dtype == dtype and tensors["final_norm.gain"].dtype == np.float32
    again, wide = twins("llama_gqa", "matrices", kind)
    again.model.set_parameter("embed", np.zeros_like(wide.model.parameters["embed"]))
    again.load_state_tensors(tensors)
    for name, value in narrow.model.parameters.items():
        assert np.array_equal(value, again.model.parameters[name])
    weights = {name: value for name, value in tensors.items() if "/" not in name}
    found = [part for part in again.state_parts() if "/" not in part.name]
    assert final_hash(whole_parts(weights)) == final_hash(found)
    with pytest.raises(ValueError, match=r"embed: expected (BF16|F16) .*, got F32"):
        again.load_state_tensors({**tensors, "embed": np.array(wide.model.parameters["embed"])})


def test_rounding_is_said_and_what_fits_is_not() -> None:
    narrow, _ = twins("gpt2", "matrices", "bf16")
    model, value = narrow.model, np.full(CASES["gpt2"][0].vocab_size * 36, 0.1, np.float32).reshape(-1, 36)
    with pytest.warns(
        UserWarning, match=r"\[set_parameter\] embed: 2,196 of 2,196 values were rounded to bfloat16"
    ):
        model.set_parameter("embed", value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_parameter("embed", model.parameters["embed"])
        model.set_parameter("embed", np.ones_like(value, np.float16))
    assert np.all(model.parameters["embed"] == 1) and not model.parameters["embed"].flags.writeable


def test_only_what_is_frozen_for_good_is_stored_so() -> None:
    cfg = CASES["llama_gqa"][0]
    model = Model(cfg, stored={"embed": "float16"})
    assert "embed" not in model.loss_and_gradients(make_batch(cfg.vocab_size, BATCH, LENGTH))[1]
    with pytest.raises(
        UserError, match=r"train.trainable: .* got 'embed', which is in float16; leave it out"
    ):
        Engine(config("llama_gqa", ""), model)
    Engine(config("llama_gqa", "!embed"), model)
    with pytest.raises(ValueError, match="only frozen matrices are stored in 16 bits"):
        Model(cfg, stored={"final_norm.gain": "bfloat16"})
    with pytest.raises(KeyError, match="there is no 'embedd'"):
        Model(cfg, stored={"embedd": "bfloat16"})
    with pytest.raises(
        UserError, match=r"train.frozen_dtype: expected float32, in which the given model stores"
    ):
        Trainer(config("llama_gqa", "!embed", "bf16"), model=Model(cfg))
    assert config_hash(config("gpt2", "!embed")) != config_hash(config("gpt2", "!embed", "bf16"))
    assert config_hash(config("gpt2", "")) == config_hash(config("gpt2", "", "stored"))


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_ranks_of_a_node_share_them_and_train_to_the_bits_of_one_process(kind: str) -> None:
    asked = config("llama_gqa", trained("llama_gqa", "half"))
    names = [name for name in make("llama_gqa")[2] if name not in asked.train.trainable.split(",")]
    stored = dict.fromkeys(names, kind)

    def work(comm: Any) -> tuple[list[float], dict[str, bytes], int]:
        model = Model(asked.model, seed=3, stored=stored, comm=comm)
        engine = Engine(asked, model)
        losses = [engine.train_step(step, 1e-2, batch_of(asked, step)).loss for step in range(3)]
        weights = {name: value.tobytes() for name, value in model.parameters.items()}
        assert {model.store.shared(name) for name in weights} == {comm is not None}
        return losses, weights, model.store.plane_bytes

    alone = work(None)
    assert all(rank == alone for rank in on_ranks(work, 2))


@pytest.mark.parametrize(("kind", "largest"), [("float16", 65519.0), ("bfloat16", 3.389e38)])
def test_a_weight_beyond_the_range_of_its_type_is_refused(kind: str, largest: float) -> None:
    shape = TransformerPPConfig(vocab_size=8, max_seq_len=8, d_model=8, n_layer=1, n_head=2, d_ff=8)
    model = Model(shape, stored={"embed": kind})
    weights = np.zeros((8, 8), np.float32)
    weights[2, 3] = -largest
    with pytest.warns(UserWarning, match="rounded"):
        model.set_parameter("embed", weights)
    assert np.isfinite(model.parameters["embed"]).all()
    weights[2, 3] = -65520.0 if kind == "float16" else -3.4e38
    with pytest.raises(
        UserError, match=rf"embed: expected weights that {kind} can hold, got -.* at element 19 "
    ):
        model.set_parameter("embed", weights)


@pytest.mark.parametrize("kind", ["float32", "stored"])
def test_a_shape_that_differs_is_named_with_the_expected_one(kind: str) -> None:
    types = {"embed": "bfloat16"} if kind == "stored" else {}
    model = Model(next(iter(CASES.values()))[0], initialize=False, stored=types)
    expected = list(model.parameters["embed"].shape)
    with pytest.raises(ValueError, match=re.escape(f"embed: expected shape {expected}, got [2, 3]")):
        model.store.set_values("embed", np.ones((2, 3), np.float32))
