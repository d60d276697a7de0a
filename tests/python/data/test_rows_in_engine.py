"""The engine reads sequences of any pipeline, with positions, segments and key_mask, from the core or from Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mudd_core import _core
from mudd_core.config import Config, TrainConfig
from mudd_core.data import Batcher, TokenCache
from mudd_core.data.pipelines import PARTS
from mudd_core.engine.engine import Engine
from mudd_core.engine.model import Model
from small_models import CASES

BATCH, LENGTH = 4, 12


class PythonRows:
    """Sequences from Python with two documents each and a masked last token."""

    core = None
    rows = 10
    parts = PARTS

    def arrays(self, first_sample: int, n_samples: int) -> dict[str, Any]:
        rows = [self._row(first_sample + i) for i in range(n_samples)]
        return {name: np.array([row[name] for row in rows], np.int32) for name in rows[0]}

    def _row(self, sample: int) -> dict[str, Any]:
        ids = np.random.default_rng(sample).integers(0, 61, LENGTH + 1)
        half = LENGTH // 2
        return {
            "inputs": ids[:-1],
            "targets": ids[1:],
            "positions": [*range(half), *range(LENGTH - half)],
            "segments": [1] * half + [2] * (LENGTH - half),
            "key_mask": [1] * (LENGTH - 1) + [0],
        }


def _engine(batcher: Any, micro: int = 0) -> Engine:
    shape = CASES["llama_gqa"][0]
    train = TrainConfig(steps=9, batch_size=BATCH, seq_len=LENGTH, micro_batch_size=micro, logical_shards=4)
    return Engine(Config(name="rows", model=shape, train=train), Model(shape, seed=3), batcher)


def _weights(engine: Engine) -> list[bytes]:
    return [part.array.tobytes() for part in engine.state_parts()]


@pytest.mark.parametrize("micro", [0, 1])
def test_rows_made_in_python_train_as_given_batches_do(micro: int) -> None:
    rows = PythonRows()
    own, given = _engine(rows, micro), _engine(None)
    for step in range(2):
        own.train_step(step, 1e-2)
        given.train_step(step, 1e-2, rows.arrays(step * BATCH, BATCH))
    assert _weights(own) == _weights(given)
    own.first_nonfinite(1)


def test_a_source_and_a_graph_of_other_inputs_are_refused(cache: TokenCache) -> None:
    engine = _engine(PythonRows())
    with pytest.raises(ValueError, match="does not give it, the graph takes it"):
        _core.fill_inputs(Batcher(cache, "train", LENGTH).core, engine.executor, 0)


def test_a_source_repeats_its_first_rows(cache: TokenCache) -> None:
    rows = Batcher(cache, "train", LENGTH)
    first = rows.arrays(0, BATCH)["inputs"]
    assert not (rows.arrays(BATCH, BATCH)["inputs"] == first).all()
    rows.core.repeat(BATCH)
    assert (rows.arrays(7 * BATCH, BATCH)["inputs"] == first).all()
    assert (rows.arrays(7 * BATCH + 1, 1)["inputs"] == first[1]).all()
