"""Rows of n-grams in the stream: every family against PyTorch, decoding, documents, and bits of threads and ranks."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from both_executors import in_both_executors
from mudd_core import nn
from mudd_core.base.errors import UserError
from mudd_core.config import OptimConfig
from mudd_core.engine.engine import Engine
from mudd_core.engine.model import Model
from rank_runs import config_in_shards, train
from reference import torch_models as tm
from reference import torch_training as tt
from reference.bounds import LOGITS, LOSS
from reference.torch_ngrams import WithNgrams
from small_models import CASES, make_batch, make_batches, require_gradients, state, worst

FAMILIES = ("llama_gqa", "gpt2", "mudd", "tokenformer", "mup", "mixtral", "mudd_experts")
ROWS, WIDTH = 53, 12


def config_of(name: str, **fields: Any) -> Any:
    """Return the config of a case with a table of n-grams."""
    return dataclasses.replace(CASES[name][0], ngram_rows=ROWS, ngram_width=WIDTH, **fields)


def make(name: str, **fields: Any) -> tuple[Model, WithNgrams, dict[str, np.ndarray]]:
    """Return our model with random weights, the reference, and the weights."""
    ours = config_of(name, **fields)
    if getattr(ours, "n_expert", 0):
        ours = dataclasses.replace(ours, aux_scope="batch")
    theirs = WithNgrams(
        CASES[name][1],
        depth=ours.d_model,
        rows=ROWS,
        width=WIDTH,
        orders=ours.ngram_orders,
        layers=tuple(range(ours.n_layer)) if not ours.ngram_layers else (1,),
        eps=ours.norm_eps,
        end=ours.ngram_end,
    )
    params = tm.random_params(theirs, std=getattr(CASES[name][1], "std", 0.08))
    model = Model(ours)
    assert set(params) == set(model.parameters)
    for key, value in params.items():
        model.set_parameter(key, value)
    return model, theirs, params


@pytest.mark.parametrize("fields", [{}, {"ngram_orders": "1, 2,3", "ngram_layers": "1", "ngram_end": 7}])
@pytest.mark.parametrize("name", ["llama_gqa", "gpt2", "mudd", "tokenformer", "mup"])
def test_logits_and_gradients_equal_autograd(name: str, fields: dict[str, Any]) -> None:
    model, cfg, params = make(name, **fields)
    batch = make_batch(cfg.vocab_size, 3, 12)
    batch["inputs"][1, 5] = batch["inputs"][2, 0] = 7
    segments = np.sort(np.random.default_rng(5).integers(0, 3, (3, 12)), 1).astype(np.int32)
    for extra in ({}, {"segments": segments}):
        want = tt.loss_and_grads(params, batch["inputs"], batch["targets"], cfg, dtype=torch.float64, **extra)
        loss, gradients = model.loss_and_gradients({**batch, **extra})
        assert loss == pytest.approx(want.loss, rel=LOSS)
        require_gradients(gradients, want.grads)
    want = tt.loss_and_grads(params, batch["inputs"], batch["targets"], cfg, dtype=torch.float64)
    assert worst(model.logits(batch["inputs"]), want.logits) <= LOGITS


@pytest.mark.parametrize("name", FAMILIES)
def test_both_executors_and_decoding_have_the_same_bits(name: str) -> None:
    model, cfg, _ = make(name, ngram_orders="1,2,3")
    in_both_executors(model, make_batch(cfg.vocab_size, 4, 9), shards=2)
    ids = np.random.default_rng(1).integers(0, cfg.vocab_size, 13).astype(np.int32)
    generator = model.generator()
    whole = model.logits(ids)
    for pieces in ([1] * 13, [4, 9], [13]):
        caches, cached, rows = generator.take_caches(), 0, []
        for size in pieces:
            rows.append(generator.feed(ids[cached : cached + size], cached, caches))
            cached += size
        assert np.array_equal(np.concatenate(rows).view(np.int32), whole.view(np.int32)), pieces
        generator.give_back(caches)


def test_a_table_of_zeros_changes_no_logit_and_rows_do() -> None:
    plain = Model(CASES["llama_gqa"][0], seed=3)
    model = Model(config_of("llama_gqa"), seed=3)
    for name in plain.parameters:
        model.set_parameter(name, plain.parameters[name])
    ids = np.arange(11, dtype=np.int32)
    assert np.array_equal(plain.logits(ids), model.logits(ids))
    model.set_parameter("ngrams.rows", np.ones((ROWS, WIDTH), np.float32))
    assert not np.array_equal(plain.logits(ids), model.logits(ids))


def test_a_ring_continues_beyond_the_longest_sequence() -> None:
    model, _, _ = make("llama_gqa", max_seq_len=16)
    tokens = list(model.generate([3, 1, 4], max_tokens=40, temperature=1.0, seed=2, window="ring"))
    assert len(tokens) == 40
    short = list(model.generate([3, 1, 4], max_tokens=10, temperature=1.0, seed=2))
    assert tokens[:10] == short


def optimized(name: str, rows: int = ROWS) -> Any:
    """Return a config with a table; a gradient has each row of a small one, and a list of rows of a large one."""
    fields = {"vocab_size": 61, "max_seq_len": 16, "ngram_rows": rows}
    return config_in_shards(
        dataclasses.replace(config_of(name), **fields),
        optim=OptimConfig(lr=3e-3, rows_lr_factor=8, rows_weight_decay=0.1),
    )


@pytest.mark.parametrize("rows", [ROWS, 20_011])
@pytest.mark.parametrize("name", ["llama_gqa", "mudd", "mixtral"])
def test_ranks_have_the_bits_of_one_process(name: str, rows: int) -> None:
    config = optimized(name, rows)
    want = train(config, 1)
    for world in (2, 4):
        assert train(config, world) == want, world
    cut = dataclasses.replace(config, mesh=dataclasses.replace(config.mesh, zero=3))
    assert train(cut, 2).losses == want.losses


@pytest.mark.parametrize("rows", [ROWS, 20_011])
def test_threads_micro_batches_and_a_resume_keep_the_bits(rows: int) -> None:
    base = optimized("llama_gqa", rows)
    batches = make_batches(61, 4, samples=8, length=16)

    def run(steps: range, start: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        config = dataclasses.replace(base, train=dataclasses.replace(base.train, **fields))
        model = mc.Model(config.model, seed=5)
        engine = Engine(config, model)
        if start:
            engine.load_state_tensors(start)
        for step in steps:
            engine.train_step(step, 3e-3, batches[step])
        return state(engine)

    whole = run(range(4))
    assert {"row_moment/ngrams.rows", "row_update/ngrams.rows"} <= set(whole)
    assert "first_moment/ngrams.rows" not in whole
    half = run(range(2))
    touched = np.any(whole["ngrams.rows"], axis=1)
    assert np.array_equal(whole["row_update/ngrams.rows"] > 0, touched)
    assert touched.all() == (rows == ROWS)
    for other in (run(range(4), threads=2), run(range(4), micro_batch_size=2), run(range(2, 4), half)):
        assert set(other) == set(whole)
        assert all(np.array_equal(whole[key], other[key]) for key in whole)


def test_the_table_has_its_own_rate_and_decay() -> None:
    weights = []
    for settings in ({"rows_lr_factor": 8.0}, {"rows_lr_factor": 16.0}):
        config = dataclasses.replace(
            optimized("llama_gqa"), optim=OptimConfig(lr=3e-3, rows_weight_decay=0.0, **settings)
        )
        model = mc.Model(config.model, seed=5)
        engine = Engine(config, model)
        engine.train_step(0, 3e-3, make_batch(61, 8, 16))
        weights.append(np.array(model.parameters["ngrams.rows"]))
    assert np.any(weights[0])
    assert np.array_equal(2 * weights[0], weights[1])
    grouped = dataclasses.replace(
        optimized("llama_gqa"), optim=OptimConfig(lr=3e-3, groups="adamw: role=rows, lr_factor=2")
    )
    state = Engine(grouped, mc.Model(grouped.model, seed=5)).state_tensors()
    assert {"first_moment/ngrams.rows", "second_moment/ngrams.rows"} <= set(state)
    assert "row_moment/ngrams.rows" not in state


def test_wrong_fields_are_refused() -> None:
    for field, value, message in (
        ("ngram_orders", "2,4", "expected different numbers from 1 to 3"),
        ("ngram_orders", "2,2", "expected different numbers from 1 to 3"),
        ("ngram_layers", "9", "expected layers from 0 to"),
    ):
        with pytest.raises(UserError, match=message):
            mc.load_config("tiny.py", [f"model.{field}={value}", "model.ngram_rows=100"])


def test_the_output_matrix_has_a_rate_that_does_not_depend_on_the_width() -> None:
    rates = []
    for width in (24, 48):
        model = dataclasses.replace(config_of("mup"), d_model=width, d_base=12)
        config = config_in_shards(model, optim=OptimConfig(lr=3e-3, rule="mup"))
        engine = Engine(config, mc.Model(model, seed=5))
        about = {name: engine.model.store.describe(name)["lr_scale"] for name in engine.model.store.names()}
        rates.append([about[f"blocks.0.ngrams.{name}.w"] for name in ("gate", "out")])
    assert rates == [[0.5, 1.0], [0.25, 1.0]]


def test_a_family_whose_function_ignores_the_table_is_refused() -> None:
    @dataclasses.dataclass(frozen=True)
    class Ignores(mc.FamilyConfig):
        """A family without a table."""

    def model(config: Ignores, batch: mc.Batch) -> mc.Hidden:
        x = nn.embedding(batch.inputs, "embed", config.vocab_size, config.d_model, std=0.02)
        return mc.Hidden(x, nn.head(config, std=0.02))

    mc.register_family(Ignores, model)
    sizes = {"vocab_size": 17, "max_seq_len": 8, "d_model": 16}
    assert mc.Model(Ignores(**sizes)).logits(np.arange(3, dtype=np.int32)).shape == (3, 17)
    with pytest.raises(UserError, match="the model function of Ignores does not use"):
        mc.Model(Ignores(**sizes, ngram_rows=10))
