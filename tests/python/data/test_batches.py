"""Order of samples, validation sequences, wrong input of the batcher; random values from Python."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from mudd_core import _core
from mudd_core.base.errors import FormatError, UserError
from mudd_core.config import Config, TrainConfig
from mudd_core.data import Batcher, TokenCache
from mudd_core.engine.engine import Engine
from small_models import make


def test_corpus_shorter_than_one_window(cache: TokenCache) -> None:
    with pytest.raises(UserError, match="the corpus is too short"):
        Batcher(cache, "train", cache.n_train_tokens)
    assert Batcher(cache, "train", cache.n_train_tokens - 1).rows == 1


def test_batches_depend_on_the_index_only(cache: TokenCache) -> None:
    a, b = Batcher(cache, "train", 64, seed=3), Batcher(cache, "train", 64, seed=3)
    n = a.rows
    inputs, targets = a.batch(0, 2 * n)
    assert (inputs[:, 1:] == targets[:, :-1]).all()
    for sample in (2 * n - 1, 0, n, 7):
        x, y = b.batch(sample, 1)
        assert (x[0] == inputs[sample]).all()
        assert (y[0] == targets[sample]).all()
    ids = cache.tokens("train")
    starts = np.array([a.core.start_of(i) for i in range(2 * n)])
    for i in range(2 * n):
        assert (inputs[i] == ids[starts[i] : starts[i] + 64]).all()
    assert len(set(starts[:n])) == len(set(starts[n:])) == n
    assert (starts[:n] % 64 == starts[0] % 64).all()
    assert starts[0] % 64 != starts[n] % 64
    assert list(starts[:n]) != sorted(starts[:n])
    other = Batcher(cache, "train", 64, seed=4)
    assert [other.core.start_of(i) for i in range(n)] != list(starts[:n])


def test_validation_covers_every_token_once(cache: TokenCache) -> None:
    batches = Batcher(cache, "valid", 50)
    ids = cache.tokens("valid").astype(np.int32)
    inputs = np.empty((batches.rows + 1, 50), np.int32)
    targets = np.empty_like(inputs)
    assert batches.fill(0, inputs, targets) == len(ids) - 1
    assert (inputs.reshape(-1)[: len(ids) - 1] == ids[:-1]).all()
    assert (targets.reshape(-1)[: len(ids) - 1] == ids[1:]).all()
    assert (targets.reshape(-1)[len(ids) - 1 :] == -1).all()
    assert (inputs.reshape(-1)[len(ids) - 1 :] == cache.eos_id).all()


def test_an_id_outside_the_vocabulary_is_found_at_batch_time(cache: TokenCache) -> None:
    liar = replace(cache, vocab_size=int(cache.tokens("train").max()))
    with pytest.raises(FormatError, match="outside the vocabulary"):
        Batcher(replace(liar, eos_id=0), "train", 64).batch(0, Batcher(cache, "train", 64).rows)


def test_fill_refuses_wrong_arrays(cache: TokenCache) -> None:
    batches = Batcher(cache, "train", 16)
    good = np.empty((4, 16), np.int32)
    for bad in (
        np.empty((4, 15), np.int32),
        np.empty((3, 16), np.int32),
        np.empty(64, np.int32),
        np.empty((16, 4), np.int32).T,
    ):
        with pytest.raises(ValueError, match="targets"):
            batches.fill(0, good, bad)
    with pytest.raises(TypeError, match="int32"):
        batches.fill(0, good, np.empty((4, 16), np.int64))  # type: ignore[arg-type]
    frozen = np.empty((4, 16), np.int32)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        batches.fill(0, good, frozen)
    with pytest.raises(ValueError, match="samples"):
        batches.fill(-1, good, good)
    with pytest.raises(ValueError, match="split"):
        Batcher(cache, "test", 16)  # type: ignore[arg-type]
    assert batches.fill(0, good[:0], good[:0]) == 0


def test_one_batcher_in_two_threads_is_an_error_or_right(cache: TokenCache) -> None:
    batches = Batcher(cache, "train", 32)
    wanted = batches.batch(0, 500)[0]
    refused, wrong = [], []

    def work() -> None:
        for _ in range(50):
            try:
                if not (batches.batch(0, 500)[0] == wanted).all():
                    wrong.append(1)
            except RuntimeError as e:
                refused.append(str(e))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert all("two threads" in r for r in refused)


# Random numbers


def test_philox_and_permutation_from_python() -> None:
    assert list(_core.philox([0, 0, 0, 0], [0, 0])) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    images = [_core.permute(i, 1000, seed=1, purpose="data.order") for i in range(1000)]
    assert sorted(images) == list(range(1000))
    assert images != sorted(images)
    with pytest.raises(ValueError, match="permute"):
        _core.permute(5, 5, seed=0, purpose="x")
    whole = _core.random_normal(0, 1001, seed=9, purpose="w", stddev=0.02)
    part = _core.random_normal(333, 1001, seed=9, purpose="w", stddev=0.02)
    assert (whole[333:] == part).all()
    # The standard deviation of a sample.
    assert abs(whole.std() - 0.02) < 0.002


@pytest.mark.parametrize("length", [16, 64])
def test_a_batcher_of_other_windows_than_the_graph_is_refused(cache: TokenCache, length: int) -> None:
    model, shape, _ = make("llama_gqa")
    config = Config(name="windows", model=shape, train=TrainConfig(steps=9, batch_size=4, seq_len=33))
    engine = Engine(config, model, Batcher(cache, "train", length))
    with pytest.raises(ValueError, match=rf"as the batcher gives|expected \[4, {length}\]"):
        engine.train_step(0, 1e-3)
