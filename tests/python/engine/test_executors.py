"""Both executors, every planner switch and any number of threads return the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from both_executors import in_both_executors, same
from mudd_core import _core, ops
from mudd_core.config import Config, TrainConfig
from mudd_core.engine.engine import Engine
from mudd_core.fingerprint import recording
from mudd_core.graph.recording import Recorder
from near import REORDERED
from small_models import CASES, make, make_batch


@pytest.mark.parametrize("shape", [(4, 9), (8, 33)])
@pytest.mark.parametrize("name", CASES)
def test_planned_equals_immediate(name: str, shape: tuple[int, int]) -> None:
    model, cfg, _ = make(name)
    batch = make_batch(cfg.vocab_size, *shape)
    planned = in_both_executors(model, batch, shards=4)
    # The comparison can fail: another tree over shards returns other bits.
    assert not same(planned, model.loss_and_gradients(batch, shards=1))


@pytest.mark.parametrize(
    "options",
    [
        {"reuse": False},
        {"poison": True},
        {"recompute": True, "poison": True},
        {"shift": 24, "poison": True},
        {"reuse": False, "shift": 8},
    ],
)
@pytest.mark.parametrize("name", CASES)
def test_planner_switches_never_change_bits(name: str, options: dict[str, Any]) -> None:
    model, cfg, _ = make(name)
    batch = make_batch(cfg.vocab_size, 4, 17)
    want = model.loss_and_gradients(batch, shards=4)
    assert same(model.loss_and_gradients(batch, shards=4, **options), want)


@pytest.mark.parametrize("name", CASES)
def test_threads_never_change_bits(name: str) -> None:
    model, cfg, _ = make(name)
    batch = make_batch(cfg.vocab_size, 4, 40)
    results = []
    try:
        for threads in (1, 2, 3):
            mc.set_num_threads(threads)
            results.append(model.loss_and_gradients(batch, shards=4))
    finally:
        mc.set_num_threads(0)
    assert same(results[0], results[1])
    assert same(results[0], results[2])


def test_arena_grows_linearly_with_length() -> None:
    import dataclasses
    import itertools

    from mudd_core.engine.model import Model

    ours, _ = CASES["llama_gqa"]
    model = Model(dataclasses.replace(ours, max_seq_len=8192))
    sizes = [model.plan("train", 1, length).executor.arena_bytes for length in (1024, 2048, 4096, 8192)]
    for shorter, longer in itertools.pairwise(sizes):
        assert longer < 2.05 * shorter


def many_words(name: str) -> mc.Model:
    """Return this family with a large vocabulary: only the few embedding rows that a batch reads have gradients."""
    import dataclasses

    model = mc.Model(dataclasses.replace(CASES[name][0], vocab_size=1009), initialize=False)
    model.store.initialize(3)
    return model


@pytest.mark.parametrize("name", ["llama_gqa", "llama_tied", "gpt2"])
def test_rows_of_a_table_never_change_bits(name: str) -> None:
    model = many_words(name)
    batch = make_batch(1009, 4, 17)
    few, all_rows = (model.plan("train", 4, 17, shards=4, gradient_rows=on).executor for on in (True, False))
    assert few.gradient_bytes < all_rows.gradient_bytes - 1009 * 32 * 2
    want = model.loss_and_gradients_immediate(batch, shards=4)
    for on in (True, False):
        assert same(model.loss_and_gradients(batch, shards=4, gradient_rows=on), want)


@pytest.mark.parametrize("name", ["llama_gqa", "gpt2"])
def test_steps_with_rows_of_a_table_never_change_bits(name: str) -> None:
    from mudd_core.config import Config, OptimConfig, TrainConfig
    from mudd_core.engine.engine import Engine

    def steps(gradient_rows: bool, micro_batch: int) -> dict[str, Any]:
        model = many_words(name)
        plan = model.plan
        model.plan = lambda *a, **k: plan(*a, **k, gradient_rows=gradient_rows)  # type: ignore[method-assign]
        config = Config(
            name="rows",
            model=model.config,
            train=TrainConfig(steps=9, batch_size=8, seq_len=17, micro_batch_size=micro_batch),
            optim=OptimConfig(lr=1e-2, weight_decay=0.1, clip=0.5),
        )
        engine = Engine(config, model)
        for step in range(3):
            assert engine.train_step(step, 1e-2, make_batch(1009, 8, 17, seed=step)).finite
        return {key: np.array(value) for key, value in engine.state_tensors().items()}

    want = steps(False, 0)
    for micro_batch in (0, 4, 2, 1):
        got = steps(True, micro_batch)
        assert all(np.array_equal(got[key], want[key]) for key in want)


def test_an_activation_is_kept_once() -> None:
    """A feed-forward block keeps the pre-activation for backward and recomputes the output of `up` from it."""
    model, _, _ = make("gpt2")
    rows = model.plan("train", 4, 16).executor.memory_table()
    lives = [
        (kind, last - first)
        for what, kind, _, first, last, _ in rows
        if what.startswith("blocks.0.ffn.up:linear")
    ]
    kept = max(length for kind, length in lives if kind == "saved")
    results = [length for kind, length in lives if kind == "result"]
    assert len(results) == 2  # one in forward and one in backward
    assert max(results) <= 2 < kept


def test_a_custom_op_runs_in_both_executors() -> None:
    from mudd_core.graph.tape import Tensor

    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    gain = np.array([1.0, 2.0, 3.0, 4.0], np.float32)

    def double(a: Any, b: Any) -> Any:
        return 2 * a * b

    def double_backward(d: Any, a: Any, b: Any) -> Any:
        return 2 * d * b, (2 * d * a).sum((0, 1))

    tensor, weight = Tensor(x, requires_grad=True), Tensor(gain, requires_grad=True)
    out = ops.custom(double, double_backward, ops.rms_norm(tensor), weight)
    out.sum().backward()
    assert weight.grad is not None

    store = _core.ParamStore()
    store.declare("gain", [4], role="gain", fan_in=4, fan_out=4, init="ones")
    store.allocate()
    store.set(0, "gain", gain)
    recorder = Recorder(store, training=True, samples=2, shards=1)
    value = recorder.input("x", (2, 3, 4), "float32")
    result = ops.custom(
        double,
        double_backward,
        ops.rms_norm(value),
        recorder.parameter("gain", (4,), role="gain", fan_in=4, fan_out=4, init="ones"),
    )
    total = ops.custom(
        lambda a: a.sum(keepdims=True), lambda d, a: np.broadcast_to(d, a.shape).copy(), result
    )
    loss = ops.custom(lambda a: a, lambda d, a: np.ones_like(a), total)
    executor = _core.Executor(recorder.graph, store, losses=[loss.number], keep=[result.number])
    executor.set("x", x)
    executor.run()
    assert np.array_equal(executor.get(result.number), out.data)
    assert np.allclose(executor.gradient("gain"), weight.grad, rtol=REORDERED)


def test_a_result_multiplied_by_itself_has_the_same_gradients_in_both_executors() -> None:
    from mudd_core.graph.tape import Tensor

    x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    gain = np.linspace(0.5, 2, 8, dtype=np.float32)

    def sum_of(y: Any) -> Any:
        return ops.custom(lambda a: a.sum(keepdims=True), lambda d, a: np.broadcast_to(d, a.shape).copy(), y)

    weight = Tensor(gain, requires_grad=True)
    h = ops.rms_norm(Tensor(x), weight)
    sum_of(ops.linear(h, h)).backward()

    store = _core.ParamStore()
    store.declare("gain", [8], role="gain", fan_in=8, fan_out=8, init="ones")
    store.allocate()
    store.set(0, "gain", gain)
    recorder = Recorder(store, training=True, samples=8, shards=1)
    value = ops.rms_norm(
        recorder.input("x", (8, 8), "float32"),
        recorder.parameter("gain", (8,), role="gain", fan_in=8, fan_out=8, init="ones"),
    )
    total = sum_of(ops.linear(value, value))
    loss = ops.custom(lambda a: a, lambda d, a: np.ones_like(a), total)
    executor = _core.Executor(recorder.graph, store, losses=[loss.number], keep=[], poison=True)
    executor.set("x", x)
    executor.run()
    assert np.array_equal(executor.gradient("gain"), weight.grad)


def recorded() -> tuple[Any, Any, int]:
    """Return a store without memory, a graph of one matmul with it, and the index of its loss."""
    store = _core.ParamStore()
    recorder = Recorder(store, training=True, samples=2, shards=1)
    w = recorder.parameter("w", (4, 4), role="matrix", fan_in=4, fan_out=4, init="ones")
    y = ops.linear(recorder.input("x", (2, 4), "float32"), w)
    loss = ops.custom(lambda a: np.asarray([a.sum()]), lambda d, a: np.full_like(a, d[0]), y)
    return store, recorder.graph, loss.number


def test_an_executor_needs_a_graph_of_its_own_and_the_store_it_was_recorded_for() -> None:
    store, graph, loss = recorded()
    with pytest.raises(ValueError, match="not allocated"):
        store.initialize(1)
    with pytest.raises(ValueError, match="allocated store"):
        _core.Executor(graph, store, losses=[loss], keep=[])
    with pytest.raises(ValueError, match="taken by an earlier executor"):
        _core.Executor(graph, store, losses=[loss], keep=[])
    other = _core.ParamStore()
    other.declare("w", (4, 5), role="matrix", fan_in=4, fan_out=5, init="ones")
    other.allocate()
    with pytest.raises(ValueError, match="expected the store of this graph"):
        _core.Executor(recorded()[1], other, losses=[loss], keep=[])


@pytest.mark.parametrize(("run", "cache_length"), [(1, 0), (3, 0), (-1, 0), (0, -1)])
def test_numbers_of_a_run_have_bounds(run: int, cache_length: int) -> None:
    store, graph, loss = recorded()
    store.allocate()
    executor = _core.Executor(graph, store, losses=[loss], keep=[])
    executor.set("x", np.ones((2, 4), np.float32))
    executor.run()
    with pytest.raises(ValueError, match=r"run: expected 0|cache_length: expected 0"):
        executor.run(run, cache_length)


def test_shapes_of_parameters_have_bounds() -> None:
    with pytest.raises(ValueError, match="from 1 on"):
        _core.ParamStore().declare("w", (-2, -3), role="matrix", fan_in=1, fan_out=1, init="ones")


@pytest.mark.parametrize(
    ("parameter", "place"),
    [
        ("embed", "embedding (forward): output 0, float32 [2, 9, 36], inf at [0, 0, 0]"),
        (
            "blocks.0.attn.q.w",
            "linear (forward) in blocks.0.attn.q: output 0, float32 [2, 9, 36], nan at [0, 0, 0]",
        ),
        (
            "blocks.1.ffn.down.w",
            "linear (forward) in blocks.1.ffn.down: output 0, float32 [2, 9, 36], nan at [0, 0, 0]",
        ),
        (
            "final_norm.gain",
            "rms_norm (forward) in final_norm: output 0, float32 [2, 9, 36], -inf at [0, 0, 0]",
        ),
    ],
)
def test_the_node_that_reads_a_bad_weight_is_named(parameter: str, place: str) -> None:
    model, cfg, _ = make("llama_gqa")
    train = TrainConfig(steps=2, batch_size=4, seq_len=9, logical_shards=4, micro_batch_size=2)
    engine = Engine(Config("t", model.config, train=train), model)
    batch = make_batch(cfg.vocab_size, 4, 9)
    model.set_parameter(parameter, np.full(model.parameters[parameter].shape, np.inf, np.float32))
    with recording(engine) as found:
        assert not engine.train_step(0, 1e-3, batch).finite
    assert engine.first_nonfinite(0) == place
    # The record of the step, which the command diff reads, has the same wording.
    lines = found.record(engine, 1).lines
    bad = [line for line in lines if not np.isfinite(line.samples).all()]
    first = next(line for line in bad if line.key.stage not in ("state", "data"))
    assert place.startswith(f"{first.title()}, {first.form()}, ")
