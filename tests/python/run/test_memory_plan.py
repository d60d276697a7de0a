"""The memory that --plan tells, against whole runs on configs drawn at random (bench/bench_memory.py draws more)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from places import ROOT

sys.path[:0] = [str(ROOT / "bench")]

import bench_memory  # noqa: E402
from own_cases import PARALLEL, STATE_SPACE  # noqa: E402

SEED = 3


def test_a_draw_is_the_same_for_ever_and_families_come_in_turn() -> None:
    drawn = [bench_memory.draw(SEED, index) for index in range(12)]
    assert drawn == [bench_memory.draw(SEED, index) for index in range(12)]
    assert [words[0].split("/")[0][9:] for words in drawn] == [*bench_memory.FAMILIES] * 2
    assert len({tuple(words) for words in drawn}) == 12


@pytest.mark.parametrize("index", [1, 8, 9])  # of families that test_launch does not measure
def test_the_plan_tells_the_peak_within_a_tenth(index: int, tiny_text: Path, tmp_path: Path) -> None:
    words = bench_memory.draw(SEED, index, most_tokens=512)
    predicted, real = bench_memory.measure(words, tiny_text, tmp_path)
    assert predicted == pytest.approx(real, rel=0.10)


@pytest.mark.parametrize("name", [PARALLEL, STATE_SPACE])
def test_the_plan_of_an_architecture_of_ones_own_too(name: str, tiny_text: Path, tmp_path: Path) -> None:
    sizes = (
        "model.d_model=384",
        "model.n_layer=4",
        "model.d_ff=1024",
        "train.batch_size=8",
        "train.seq_len=128",
    )
    words = ["--config=transformer_pp/tiny.py", f"--model.family={name}", *sizes]
    predicted, real = bench_memory.measure(words, tiny_text, tmp_path)
    assert predicted == pytest.approx(real, rel=0.10)
