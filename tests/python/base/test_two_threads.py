"""One object, one thread at a time: the second thread gets a RuntimeError, and the first gets correct results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from fake_engine import FakeEngine, fake_assembly
from fake_runs import config_of
from mudd_core import _core, ops
from mudd_core.config import Config, DataConfig, TrainConfig, TransformerPPConfig
from mudd_core.engine.model import Model
from mudd_core.graph.recording import Recorder
from mudd_core.run.loop.trainer import Trainer

REFUSED = "two threads at once"
SHAPE = TransformerPPConfig(d_model=16, n_layer=1, n_head=2, d_ff=16, vocab_size=30, max_seq_len=8)
IDS = np.arange(8).reshape(2, 4)
BATCH = {"inputs": IDS, "targets": IDS}


class Gate:
    """A gate whose wait() reports that it was reached and then blocks until the gate opens."""

    def __init__(self) -> None:
        self._reached, self._open = threading.Event(), threading.Event()

    def wait(self) -> None:
        self._reached.set()
        assert self._open.wait(20)

    @contextmanager
    def standing_in(self, work: Callable[[], Any]) -> Iterator[None]:
        """Run the block while another thread is inside work()'s wait(); raise the errors of that thread at the end."""
        errors: list[BaseException] = []

        def run() -> None:
            try:
                work()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        assert self._reached.wait(20)
        try:
            yield
        finally:
            self._open.set()
            thread.join()
        assert not errors


def test_while_a_graph_runs_nothing_of_its_store_can_be_used() -> None:
    gate, waits = Gate(), False

    def slow(x: Any) -> Any:
        if waits:  # it is called once to infer its shape
            gate.wait()
        return 2 * x

    store = _core.ParamStore()
    store.declare("gain", [4], role="gain", fan_in=4, fan_out=4, init="ones")
    store.allocate()

    def planned(recorder: Recorder, result: Any) -> Any:
        return _core.Executor(recorder.graph, store, losses=[], keep=[result.number])

    recorder = Recorder(store, training=False, samples=2, shards=1)
    result = ops.custom(slow, lambda d, x: 2 * d, recorder.input("x", (2, 4), "float32"))
    executor = planned(recorder, result)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    other = Recorder(store, training=False, samples=2, shards=1)
    other_result = ops.rms_norm(other.input("x", (2, 4), "float32"))
    calls: list[Callable[[], Any]] = [
        executor.run,
        executor.release,
        executor.first_non_finite,
        lambda: executor.set("x", x),
        lambda: executor.get(result.number),
        lambda: executor.gradient("gain"),
        lambda: executor.profile(True),
        lambda: planned(other, other_result),
        lambda: store.set(0, "gain", np.ones(4, np.float32)),
        lambda: store.initialize(1),
        lambda: store.scale("gain", lr=2.0),
        store.repack,
        store.allocate,
    ]
    executor.set("x", x)
    waits = True
    with gate.standing_in(executor.run):
        for call in calls:
            with pytest.raises(RuntimeError, match=REFUSED):
                call()
    assert np.array_equal(executor.get(result.number), 2 * x)
    store.set(0, "gain", np.full(4, 3, np.float32))  # free again


def test_a_model_in_use_refuses_every_other_thread() -> None:
    model, gate = Model(SHAPE), Gate()
    want = model.logits(IDS)
    tokens = model.generate([1, 2])

    def holds() -> None:
        with model.in_use:
            assert np.array_equal(model.logits(IDS), want)  # the same thread may enter again
            gate.wait()

    calls: list[Callable[[], Any]] = [
        lambda: model.logits(IDS),
        lambda: model.loss(BATCH),
        lambda: model.evaluate({"inputs": IDS.astype(np.int32), "targets": IDS.astype(np.int32)}),
        lambda: model.loss_and_gradients(BATCH),
        lambda: model.loss_and_gradients_immediate(BATCH),
        lambda: model.set_parameter("norm.gain", np.ones(16, np.float32)),
        lambda: model.generate([1, 2]),
        lambda: model.plan("logits", 1, 1),
        lambda: next(tokens),
    ]
    with gate.standing_in(holds):
        for call in calls:
            with pytest.raises(RuntimeError, match=REFUSED):
                call()
    assert np.array_equal(model.logits(IDS), want)


def test_a_trainer_in_its_loop_refuses_every_other_thread(tmp_path: Path) -> None:
    gate = Gate()
    engine = FakeEngine(before_step=lambda step: gate.wait() if step == 2 else None)
    with Trainer(config_of("train.steps=4"), tmp_path / "run", assemble=fake_assembly(engine)) as trainer:
        calls: list[Callable[[], Any]] = [
            trainer.step,
            trainer.fit,
            trainer.save,
            trainer.validate,
            trainer.final_hash,
            lambda: trainer.tokenizer,
        ]
        with gate.standing_in(trainer.fit):
            for call in calls:
                with pytest.raises(RuntimeError, match=REFUSED):
                    call()
        assert trainer.step_done == 4


def test_a_trainer_has_its_model_for_itself() -> None:
    model = Model(SHAPE)
    config = Config(
        model=SHAPE, data=DataConfig(tokenizer="bytes"), train=TrainConfig(batch_size=2, seq_len=4, threads=1)
    )
    with Trainer(config, model=model) as trainer:
        gate = Gate()

        def holds() -> None:
            with trainer.in_use:
                gate.wait()

        with gate.standing_in(holds):
            for call in (lambda: model.logits(IDS), lambda: trainer.engine.train_step(0, 0.0, BATCH)):
                with pytest.raises(RuntimeError, match=REFUSED):
                    call()
        assert trainer.step(BATCH).step == 1


def test_a_backward_has_its_leaves_and_records_for_itself() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(d: Any, a: Any) -> Any:
        inside.set()
        assert go_on.wait(60)
        return d

    leaf = mc.Tensor(np.ones(4, np.float32), requires_grad=True)
    shared = ops.add(leaf, leaf)
    first = mc.custom(lambda a: a.copy(), slow, shared)
    ones = np.ones(4, np.float32)
    thread = threading.Thread(target=first.backward, args=(ones,))
    thread.start()
    try:
        assert inside.wait(60)
        for loss in (ops.add(leaf, np.ones(4, np.float32)), shared):
            with pytest.raises(RuntimeError, match=r"\[backward\] called from two threads at once"):
                loss.backward(ones)
        assert leaf.grad is None
    finally:
        go_on.set()
        thread.join()
    np.testing.assert_array_equal(leaf.grad, 2)
    ops.add(leaf, ones).backward(ones)  # one after the other they add up
    np.testing.assert_array_equal(leaf.grad, 3)


def test_a_backward_that_raises_leaves_nothing_behind() -> None:
    leaf = mc.Tensor(np.ones(4, np.float32), requires_grad=True)
    fails = [True]

    def once(d: Any, a: Any) -> Any:
        if fails.pop():
            raise OSError("once")
        return d

    y = ops.add(mc.custom(lambda a: a.copy(), once, ops.add(leaf, leaf)), np.ones(4, np.float32))
    with pytest.raises(OSError, match="once"):
        y.backward(np.ones(4))
    fails.append(False)
    y.backward(np.ones(4))
    np.testing.assert_array_equal(leaf.grad, 2)
