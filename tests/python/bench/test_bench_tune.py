"""Programs and batches of the comparison of fine-tuning steps."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from places import ROOT

BENCH = ROOT / "bench"
sys.path[:0] = [str(BENCH)]

from bench_tune import OURS, REFERENCES, THEIRS, command  # noqa: E402
from tune_shapes import TUNE_SHAPES  # noqa: E402
from workload import answers_batch, batch_tokens  # noqa: E402

GIVEN = {"shape": "tiny", "precision": "fp32", "counted": 0.4, "threads": 2, "steps": 3, "warmup": 1}
BATCH = {"length": 32, "rows": 2}


@pytest.mark.parametrize("program", [*OURS, *THEIRS])
def test_every_program_has_a_file_and_the_share_of_targets(program: str) -> None:
    words = command(
        program, Path("prepared"), Namespace(**GIVEN, **BATCH, micro_batch=0, recompute=False, prefix="")
    )
    assert Path(words[1]).is_file()
    assert words[words.index("--counted") + 1] == "0.4"
    assert ("--save" in words) == (program in {*THEIRS, *REFERENCES})


@pytest.mark.parametrize("step", [0, 3])
def test_pairs_share_their_prompt_and_only_answers_are_targets(step: int) -> None:
    shape = TUNE_SHAPES["tiny"]
    batch, half = answers_batch(shape, step), shape.T // 2
    ids, targets = batch["inputs"], batch["targets"]
    assert ids.shape == targets.shape == (shape.B, shape.T)
    assert np.array_equal(ids[::2, :half], ids[1::2, :half])
    assert not np.array_equal(ids[::2, half:], ids[1::2, half:])
    assert np.array_equal(ids[:, half:], batch_tokens(shape, step)[:, half : shape.T])
    assert (targets >= 0).sum(1).tolist() == [half] * shape.B
    assert np.array_equal(targets[:, half - 1 : -1], ids[:, half:])
