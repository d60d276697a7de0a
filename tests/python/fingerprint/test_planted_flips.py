"""One flipped bit anywhere in a training step is named as the first difference of the two records."""

from __future__ import annotations

import numpy as np
import pytest

from mudd_core.config import OptimConfig
from mudd_core.dist import Comm
from mudd_core.fingerprint import Key, StepRecord, first_difference, record_step
from planted_flips import Planted, engine_of, one_of_each, planted, record
from rank_runs import batch_of, on_ranks

FAMILIES = ("llama_gqa", "gpt2", "mudd", "tokenformer", "mup", "mixtral", "mudd_experts")


@pytest.mark.parametrize(
    ("family", "precision"),
    [*((family, "fp32") for family in FAMILIES), ("llama_gqa", "bf16"), ("mudd", "bf16")],
)
def test_a_flip_in_each_op_is_named(family: str, precision: str) -> None:
    engine = engine_of(family, precision=precision)
    before = record(engine)
    for line in one_of_each(before.lines):
        if line.dtype == "int32" and line.key.stage != "data":
            continue  # an expert's number with another bit may not exist, and the next op rejects it
        found = planted(engine, before, line)
        assert found is not None and found.a.key == line.key, line.key
    assert first_difference(before, record(engine)) is None


@pytest.mark.parametrize("name", ["adamw", "lion", "sgd", "muon"])
def test_a_flip_in_an_optimizer_is_named_with_the_optimizer(name: str) -> None:
    engine = engine_of("llama_gqa", optim=OptimConfig(name=name, lr=1e-3))
    before = record(engine)
    updates = [line for line in before.lines if line.key.stage == "update" and line.op == name]
    assert {line.key.value for line in updates} >= {"weight", "first moment"}
    for line in one_of_each(tuple(updates)):
        found = planted(engine, before, line)
        assert found is not None and (found.a.op, found.a.key) == (name, line.key)


def test_a_flip_in_a_sum_over_micro_batches_is_not_blamed_on_the_op() -> None:
    engine = engine_of("llama_gqa")
    before = record(engine)
    sums = [line for line in before.lines if line.op == "sum over micro-batches"]
    found = planted(engine, before, sums[5])
    assert found is not None and found.a.key == sums[5].key
    assert str(found).startswith(f"sum over micro-batches: gradient of {sums[5].key.place}")
    gradient = next(line for line in before.lines if line.key.value == f"gradient of {sums[5].key.place}")
    found = planted(engine, before, gradient)
    assert found is not None and (found.a.key.stage, found.a.op) == ("backward", gradient.op)


def test_a_flip_in_the_exchange_of_two_ranks_is_named() -> None:
    def work(comm: Comm) -> list[tuple[Key, Key | None]]:
        engine = engine_of("llama_gqa", comm=comm)
        before = record(engine)
        named = []
        lines = [line for line in before.lines if line.op == "sum over ranks"]
        node = next(line for line in before.lines if line.key.rank == 1 and line.key.stage == "backward")
        for line in [*lines[:2], *lines[-2:], node]:
            flip = Planted(line.key, 1, comm.rank)
            found = first_difference(before, record(engine, wrap=flip))
            named.append((line.key, found.a.key if found else None))
        return named

    for named in on_ranks(work, 2):
        assert {key.rank for key, _ in named} == {0, 1}
        assert all(key == found for key, found in named), named


@pytest.mark.parametrize("name", ["rate", "clip factor", "gradient norm"])
def test_a_changed_number_of_the_step_is_named(name: str) -> None:
    engine = engine_of("gpt2")
    before = record(engine)
    found = first_difference(before, record(engine, wrap=Planted(Key(0, 0, "step", "step", name))))
    assert found is not None and found.a.key.value == name
    assert str(found).startswith(f"the {name} of the step")


def test_changed_ids_are_named_as_data_with_their_sequences() -> None:
    engine = engine_of("gpt2")
    batch = batch_of(engine.config, 0)
    other = {name: array.copy() for name, array in batch.items()}
    other["inputs"][[2, 5], 3] ^= 1  # of two micro-batches
    records = [record_step(engine, 7, 1e-3, one, restore=True)[0] for one in (batch, other)]
    found = first_difference(*records)
    assert found is not None and found.a.key[2:] == ("data", "batch", "inputs")
    assert found.rows == (2, 5)
    assert str(found).endswith("sequences of the batch that differ: 2, 5")


def test_a_recorded_step_has_the_bits_of_any_other() -> None:
    plain, recorded = engine_of("mixtral"), engine_of("mixtral")
    batch = batch_of(plain.config, 0)
    want = plain.train_step(0, 1e-3, batch)
    first = record(recorded)
    assert first.header.loss == np.float64(f"{want.loss:.17g}")
    record(recorded)
    recorded.train_step(0, 1e-3, batch)
    for a, b in zip(plain.state_parts(), recorded.state_parts(), strict=True):
        assert a.name == b.name and a.array.tobytes() == b.array.tobytes(), a.name


def test_all_values_have_separate_places() -> None:
    lines: StepRecord = record(engine_of("mudd"))
    assert len({line.key for line in lines.lines}) == len(lines.lines)
