"""The memory that --plan predicts, compared with runs of random configs (bench/bench_memory.py measures more)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from chat_cases import turns, write_folder, write_jsonl
from hf_models import SHARED, transformers
from places import ROOT

sys.path[:0] = [str(ROOT / "bench")]

import bench_memory  # noqa: E402
from near import PLANNED  # noqa: E402
from own_cases import PARALLEL, STATE_SPACE  # noqa: E402

SEED = 3


def test_a_draw_is_the_same_for_ever_and_families_come_in_turn() -> None:
    drawn = [bench_memory.draw(SEED, index) for index in range(12)]
    assert drawn == [bench_memory.draw(SEED, index) for index in range(12)]
    assert [words[0].split("/")[0][9:] for words in drawn] == [*bench_memory.FAMILIES] * 2
    assert len({tuple(words) for words in drawn}) == 12


@pytest.mark.parametrize("index", [1, 8, 9])  # from families that test_launch does not measure
def test_the_plan_tells_the_peak_within_a_tenth(index: int, tiny_text: Path, tmp_path: Path) -> None:
    words = bench_memory.draw(SEED, index, most_tokens=512)
    predicted, real = bench_memory.measure(words, tiny_text, tmp_path)
    assert predicted == pytest.approx(real, rel=PLANNED)


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
    assert predicted == pytest.approx(real, rel=PLANNED)


@pytest.mark.parametrize("method", ["last:2", "full"])
def test_the_plan_of_a_tuning_in_bf16_too(method: str, tmp_path: Path) -> None:
    write_folder(tmp_path / "base", "chatml")
    sizes = {"vocab_size": 8192, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 6}
    heads = {"num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 256}
    settings = transformers.LlamaConfig(**{**SHARED, **sizes, **heads})
    transformers.LlamaForCausalLM(settings).save_pretrained(tmp_path / "base")
    talk = [{"messages": turns(f"{n} " + "why " * 20, "so " * 20)} for n in range(30)]
    words = ["tune", f"--base={tmp_path / 'base'}", f"--data={write_jsonl(tmp_path / 'chat.jsonl', talk)}"]
    words += [
        f"tune.method={method}",
        "train.precision=bf16",
        "train.threads=1",
        "train.steps=3",
        "train.stop_at=2",
    ]
    predicted, real = bench_memory.measure_command(words, tmp_path)
    assert predicted == pytest.approx(real, rel=PLANNED)
