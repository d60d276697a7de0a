"""Sequences of chat data: packing, order, too long examples, losses and gradients, runs that stop and resume."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from chat_cases import chat_config, random_chat, turns, write_folder, write_jsonl
from launched import launched
from mudd_core import dist
from mudd_core.base.errors import FormatError, UserError
from mudd_core.config import Config, TransformerPPConfig
from mudd_core.data.pipelines import prepare
from mudd_core.data.pipelines.chat_data import ChatData
from mudd_core.data.pipelines.chat_rows import ChatRows, best_fit
from mudd_core.data.rows import RowShape
from mudd_core.engine.model import Model
from mudd_core.run.loop.trainer import Trainer
from places import ROOT
from rank_runs import on_ranks

LENGTH = 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a tokenizer and 60 conversations of 12 to 150 tokens."""
    import random

    made = tmp_path_factory.mktemp("chat")
    write_folder(made / "tokenizer", "llama3")
    draw = random.Random(3)
    write_jsonl(made / "chat.jsonl", [{"messages": random_chat(draw)} for _ in range(60)])
    return made


def data_of(folder: Path, *words: str) -> ChatData:
    found = prepare(chat_config(folder, folder / "chat.jsonl", *words))
    assert isinstance(found, ChatData)
    return found


def rows_of(folder: Path, *words: str, seed: int = 5) -> ChatRows:
    return data_of(folder, *words).rows("train", RowShape(LENGTH, 4, seed))


def test_best_fit_fills_the_fullest_row_that_has_room() -> None:
    assert best_fit(np.array([9, 6, 5, 4, 3, 1, 1]), 10) == [[0, 5], [1, 3], [2, 4, 6]]
    draw = np.random.default_rng(1)
    for capacity in (1, 7, 64):
        lengths = np.sort(draw.integers(1, capacity + 1, 300))[::-1]
        rows = best_fit(lengths, capacity)
        assert sorted(place for row in rows for place in row) == list(range(300))
        sums = [int(lengths[row].sum()) for row in rows]
        assert max(sums) <= capacity
        assert sum(total <= capacity // 2 for total in sums) <= 1  # two of them would fit into one sequence


def test_each_epoch_has_each_example_once_in_another_order(folder: Path) -> None:
    rows = rows_of(folder)
    epochs = []
    for epoch in range(2):
        samples = range(epoch * rows.rows, (epoch + 1) * rows.rows)
        epochs.append([[tuple(one.ids.tolist()) for one in rows.examples(sample)] for sample in samples])
    first, second = ([ids for row in epoch for ids in row] for epoch in epochs)
    assert sorted(first) == sorted(second)
    assert len(first) == data_of(folder).documents[0]
    assert epochs[0] != epochs[1]
    assert [sorted(map(len, row)) for row in epochs[0]] != [sorted(map(len, row)) for row in epochs[1]]
    again = rows_of(folder)
    assert [[tuple(one.ids.tolist()) for one in again.examples(s)] for s in range(3)] == epochs[0][:3]
    other = rows_of(folder, seed=6)
    assert [[tuple(one.ids.tolist()) for one in other.examples(s)] for s in range(other.rows)] != epochs[0]


def test_each_example_is_a_segment_with_positions_from_0(folder: Path) -> None:
    rows = rows_of(folder)
    got = rows.arrays(2, 5)
    for at in range(5):
        begin = 0
        for number, one in enumerate(rows.examples(2 + at), 1):
            here = slice(begin, begin := begin + one.ids.size - 1)
            assert got["inputs"][at, here].tolist() == one.ids[:-1].tolist()
            assert got["targets"][at, here].tolist() == np.where(one.counts, one.ids, -1)[1:].tolist()
            assert got["positions"][at, here].tolist() == list(range(one.ids.size - 1))
            assert set(got["segments"][at, here].tolist()) == {number}
        assert not got["segments"][at, begin:].any() and (got["targets"][at, begin:] == -1).all()


def test_without_a_shuffle_rows_begin_in_the_order_of_the_file(folder: Path) -> None:
    rows = rows_of(folder, "data.shuffle=off")
    firsts = [min(rows.examples(s)[0].ids.tolist() for s in [row]) for row in range(rows.rows)]
    assert [rows.examples(rows.rows + s)[0].ids.tolist() for s in range(rows.rows)] == firsts
    first = rows.first().ids.tolist()
    assert first in [one.ids.tolist() for one in rows.examples(0)]


def test_a_long_example_is_dropped_cut_or_refused(folder: Path) -> None:
    kept = data_of(folder).kept
    long = int((kept.lengths[kept.held == 0] > LENGTH + 1).sum())
    assert long >= 3
    assert any(f"left out: {long} training" in line for line in data_of(folder).describe())
    cut = data_of(folder, "data.too_long=cut")
    assert cut.documents[0] == data_of(folder).documents[0] + long
    with pytest.raises(UserError, match=rf"data\.too_long\] example \d+ has \d+ tokens, and {long} of "):
        data_of(folder, "data.too_long=fail").rows("train", RowShape(LENGTH, 4, 0))


def test_a_cut_keeps_bos_the_system_turn_and_the_last_tokens(tmp_path: Path) -> None:
    write_folder(tmp_path / "tokenizer", "llama3")
    long = "cat " * 100
    chat = [{"role": "system", "content": "the end"}, *turns(long, "So.")]
    write_jsonl(tmp_path / "chat.jsonl", [{"messages": chat}, {"messages": turns(long, "And.")}])
    data = data_of(tmp_path, "data.too_long=cut", "data.eval_path=" + str(tmp_path / "chat.jsonl"))
    assert data.tokenizer is not None
    rows = data.rows("train", RowShape(LENGTH, 1, 0))
    texts = sorted(data.tokenizer.decode(one.ids) for row in range(2) for one in rows.examples(row))
    assert all(one.ids.size == LENGTH + 1 for row in range(2) for one in rows.examples(row))
    begin = "<|begin_of_text|>"
    assert texts[0].startswith(f"{begin} cat") or texts[0].startswith(f"{begin}cat")
    assert texts[1].startswith(f"{begin}<|start_header_id|>system<|end_header_id|>\n\nthe end<|eot_id|>")
    assert texts[0].endswith("And.<|eot_id|>") and texts[1].endswith("So.<|eot_id|>")


Gradients = dict[str, npt.NDArray[np.float32]]


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    size = data_of(folder).vocab_size
    return Model(
        TransformerPPConfig(vocab_size=size, max_seq_len=LENGTH, d_model=32, n_layer=2, n_head=2, d_ff=48),
        seed=2,
    )


def loss_of(model: Model, batch: dict[str, npt.NDArray[np.int32]]) -> tuple[float, Gradients]:
    return model.loss_and_gradients(batch)


def test_packed_and_unpacked_losses_agree(folder: Path, model: Model) -> None:
    """Check within the rounding of fp32: 1e-6 of the loss, 1e-5 of the norm of the gradients."""
    rows = rows_of(folder)
    packed = rows.arrays(0, 4)
    examples = [one for row in range(4) for one in rows.examples(row)]
    alone = {name: np.zeros((len(examples), LENGTH), np.int32) for name in packed}
    alone["targets"][:] = -1
    for at, one in enumerate(examples):
        here = slice(0, one.ids.size - 1)
        alone["inputs"][at, here] = one.ids[:-1]
        alone["targets"][at, here] = np.where(one.counts, one.ids, -1)[1:]
        alone["positions"][at, here] = np.arange(one.ids.size - 1)
        alone["segments"][at, here] = 1
    assert len(examples) > 4
    (loss, gradients), (expected, wanted) = loss_of(model, packed), loss_of(model, alone)
    # Both are float32, but add in another order.
    assert abs(loss - expected) <= 1e-6 * expected
    for name, gradient in wanted.items():
        # Both are float32, but add in another order.
        assert np.linalg.norm(gradients[name] - gradient) <= 1e-5 * np.linalg.norm(gradient), name


def test_ids_that_no_counted_token_sees_change_no_bit(folder: Path, model: Model) -> None:
    """Change the padding, and the tokens after the last target of an example; then one visible token, which has an
    effect.
    """
    batch = rows_of(folder, "data.loss_on=last").arrays(0, 4)
    loss, gradients = loss_of(model, batch)
    unseen = np.ones(batch["inputs"].shape, bool)
    for row, segments in enumerate(batch["segments"]):
        for segment in range(1, segments.max() + 1):
            places = np.flatnonzero((segments == segment) & (batch["targets"][row] >= 0))
            first = int(np.flatnonzero(segments == segment)[0])
            unseen[row, first : places[-1] + 1] = False
    assert 20 < unseen.sum() < unseen.size
    changed = {**batch, "inputs": np.where(unseen, (batch["inputs"] + 7) % 200, batch["inputs"])}
    again, found = loss_of(model, changed)
    assert again == loss
    assert all((found[name] == gradients[name]).all() for name in gradients)
    changed["inputs"][0, 0] += 1
    assert loss_of(model, changed)[0] != loss


def final(config: Config, folder: Path) -> str:
    with Trainer(config, folder) as trainer:
        return trainer.fit().final_hash


def test_ranks_change_no_bit(folder: Path, tmp_path: Path) -> None:
    config = chat_config(folder, folder / "chat.jsonl")
    whole = final(config, tmp_path / "whole")

    def work(comm: dist.Comm) -> str:
        with Trainer(config, tmp_path / "ranks", comm=comm) as trainer:
            return trainer.fit().final_hash

    assert set(on_ranks(work, 2)) == {whole}


def test_the_command_shows_what_counts_and_goes_on_without_the_data(tmp_path: Path) -> None:
    write_folder(tmp_path / "tokenizer", "chatml")
    write_jsonl(tmp_path / "chat.jsonl", [{"messages": turns(f"Why {n}?", f"So {n}.")} for n in range(30)])
    words = chat_words(tmp_path)
    words.append("train.steps=3")
    done = launched(ROOT, *words, "train.stop_at=1", f"--workdir={tmp_path}/run")
    assert done.returncode == 75, done.stderr
    assert (
        "of the targets contribute to the loss (data.loss_on=assistant); the first example, " in done.stdout
    )
    assert (
        "  <|im_start|>user\\nWhy 0?<|im_end|>\\n<|im_start|>assistant\\n{+So 0.<|im_end|>\\n+}"
        in done.stdout
    )
    shown = launched(ROOT, "data", "show", *words, "--step=2")
    assert (
        shown.returncode == 0 and "  example 1  <|im_start|>user" in shown.stdout and "{+So " in shown.stdout
    )
    (tmp_path / "chat.jsonl").unlink()
    again = launched(ROOT, *words, "train.stop_at=2", f"--workdir={tmp_path}/run")
    assert again.returncode == 75, again.stderr
    kept = next((tmp_path / "cache").glob("chat-*/ids.bin"))
    damaged = bytearray(kept.read_bytes())
    damaged[9] ^= 1
    kept.write_bytes(damaged)
    assert launched(ROOT, *words, f"--workdir={tmp_path}/run").returncode == FormatError.exit_code
    (tmp_path / "chat.jsonl").write_text('{"messages": [{"role": "user", "content": "x"}]}\n')
    refused = launched(ROOT, *words, f"--workdir={tmp_path}/new")
    assert refused.returncode == UserError.exit_code and "it has no turn of the assistant" in refused.stderr


def chat_words(folder: Path) -> list[str]:
    return [
        "--config=tiny.py",
        "data.pipeline=chat",
        f"data.path={folder}/chat.jsonl",
        f"data.tokenizer={folder}/tokenizer",
        f"data.cache_dir={folder}/cache",
        "model.d_model=16",
        "model.n_layer=1",
        "model.n_head=2",
        "model.d_ff=32",
        "train.batch_size=2",
        "train.seq_len=64",
        "train.threads=1",
    ]
