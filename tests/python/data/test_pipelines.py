"""Every pipeline trains, stops and resumes with the same bits, with and without micro-batches; wrong input is
rejected.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mudd_core import data as mudd_data
from mudd_core.base.errors import FormatError, UserError
from mudd_core.config import Config, load_config
from mudd_core.data.cache.token_cache import fingerprint_of
from mudd_core.data.documents import source as documents_source
from mudd_core.data.documents import spool
from mudd_core.data.pipelines import RowShape, parts_of, prepare, user_readers
from mudd_core.data.pipelines.document_data import DocumentData
from mudd_core.data.tokenizers.bpe_training import train_bpe
from mudd_core.data.tokenizers.source import find_tokenizer
from mudd_core.run.loop.trainer import Trainer
from rank_runs import on_ranks
from text_settings import quiet

LENGTH, BATCH = 16, 2
KINDS = ("text", "pack", "rows", "blocks", "synthetic", "own_text", "own_ids")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return three jsonl files of short documents."""
    folder = tmp_path_factory.mktemp("jsonl")
    rng = random.Random(5)
    for number in range(3):
        lines = [
            " ".join(rng.choice("abcdefg") * rng.randint(1, 3) for _ in range(rng.randint(1, 9)))
            for _ in range(220)
        ]
        (folder / f"{number}.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    return folder


def _own_text(path: str) -> Any:
    return (f"document {number} of {Path(path).name}" for number in range(60))


def _own_ids(path: str) -> Any:
    return (np.arange(number, number + LENGTH + 1) % 200 for number in range(60))


mudd_data.register("own_text", _own_text)
mudd_data.register("own_ids", _own_ids)


def _config(kind: str, texts: Path, *words: str) -> Config:
    base = [
        f"data.pipeline={kind}",
        f"data.path={texts}",
        f"data.cache_dir={texts.parent}/{texts.name}-cache",
        "data.tokenizer=bytes",
        "model.vocab_size=257",
        "model.d_model=16",
        "model.n_layer=1",
        "model.n_head=2",
        "model.d_ff=32",
        "train.steps=4",
        f"train.batch_size={BATCH}",
        f"train.seq_len={LENGTH}",
        "train.eval_every=4",
        "train.save_every=2",
        "train.logical_shards=2",
        "train.threads=1",
        "eval.max_batches=2",
    ]
    return load_config("tiny.py", [*base, *words])


def _hash(config: Config, workdir: Path | None = None) -> str:
    with Trainer(config, workdir, progress=None) as trainer:
        return str(trainer.fit().final_hash)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pipeline_has_the_same_bits_in_micro_batches_and_after_a_stop(
    kind: str, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = _hash(_config(kind, texts))
    assert _hash(_config(kind, texts, "train.micro_batch_size=1")) == whole
    config = _config(kind, texts)
    with Trainer(config, tmp_path / "run") as trainer:
        for _ in range(3):
            trainer.step()
        trainer.save()
    assert _hash(config, tmp_path / "run") == whole
    other = {"rows": "train.seed=9", "own_ids": "data.shuffle=on"}.get(kind, "data.seed=9")
    assert _hash(_config(kind, texts, other)) != whole


@pytest.mark.parametrize("kind", ["pack", "blocks", "own_ids"])
def test_ranks_and_threads_read_the_rows_of_one_process(kind: str, texts: Path) -> None:
    config = _config(kind, texts)

    def work(comm: Any) -> str:
        with Trainer(config, comm=comm) as trainer:
            return str(trainer.fit().final_hash)

    whole = _hash(config)
    assert set(on_ranks(work, 2)) == {whole}
    assert _hash(_config(kind, texts, "train.threads=2")) == whole


@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_known_before_the_data(kind: str, texts: Path) -> None:
    config = _config(kind, texts)
    prepared = prepare(config, progress=quiet)
    shape = RowShape(LENGTH, BATCH, 3)
    for split in ("train", "valid"):
        rows = prepared.rows(split, shape)  # type: ignore[arg-type]
        assert tuple(rows.parts) == parts_of(config.data)
        behind = rows.arrays(rows.rows, 1)
        assert set(behind) == {"inputs", "targets", *rows.parts}
        assert split == "train" or (behind["targets"] == -1).all()


@pytest.mark.parametrize("kind", ["pack", "synthetic"])
def test_one_batch_again_and_again(texts: Path, kind: str) -> None:
    with Trainer(_config(kind, texts, "data.repeat_batch=true")) as trainer:
        rows = trainer.engine.batcher
        first = rows.arrays(0, BATCH)["inputs"]
        assert (first == rows.arrays(6, BATCH)["inputs"]).all()
        assert (first[1] == rows.arrays(7, 1)["inputs"][0]).all()
        assert trainer.step().loss != trainer.step().loss


@pytest.mark.parametrize("kind", ["pack", "rows", "blocks", "own_text"])
def test_names_of_special_tokens_are_those_tokens_but_not_in_runs_of_before(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    line = json.dumps({"text": "ab<|endoftext|>ba"}) + "\n"
    (source / "a.jsonl").write_text(line * 300)
    (tmp_path / "tokenizer.json").write_bytes(train_bpe([b"ab ba"], 1, 257))
    tokenizer = tmp_path / "tokenizer.json"
    monkeypatch.setitem(user_readers._registered, "own_text", lambda _: ["ab<|endoftext|>ba"] * 300)
    config = _config(kind, source, f"data.tokenizer={tokenizer}", f"data.cache_dir={tmp_path}/cache")
    made = prepare(config, progress=quiet)
    assert isinstance(made, DocumentData)
    around = {"pack": 2, "own_text": 2, "rows": 0, "blocks": 0}[kind]
    assert made.cache.document_starts("train")[1] == 5 + around

    earlier = fingerprint_of(made.cache.corpus_hash, find_tokenizer(str(tokenizer), 0).identity)
    resumed = prepare(config, fingerprint=earlier, progress=quiet)
    assert isinstance(resumed, DocumentData)
    assert resumed.fingerprint == earlier != made.fingerprint
    assert resumed.cache.document_starts("train")[1] == 17 + around


def test_a_killed_build_goes_on_behind_its_last_file(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents_source, "GROUP_BYTES", 1)
    whole = prepare(_config("pack", texts, f"data.cache_dir={tmp_path}/a"), progress=quiet)
    read: list[int] = []
    encode = spool.framed

    def killed(*args: Any) -> Any:
        read.append(1)
        if len(read) == 2:
            raise KeyboardInterrupt
        return encode(*args)

    monkeypatch.setattr(spool, "framed", killed)
    config = _config("pack", texts, f"data.cache_dir={tmp_path}/b")
    with pytest.raises(KeyboardInterrupt):
        prepare(config, progress=quiet)
    assert not list((tmp_path / "b").glob("*/tokens.h5"))
    resumed = prepare(config, progress=quiet)
    assert len(read) == 4  # the first file is not read again
    assert resumed.seal == whole.seal
    assert resumed.fingerprint == whole.fingerprint
    assert not list((tmp_path / "b").glob("*.parts"))


def test_a_build_that_data_refuse_leaves_nothing_half_made(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that no parts are left: the corrected data have a cache with another name, so nobody could use them."""
    monkeypatch.setattr(documents_source, "GROUP_BYTES", 1)
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "0.jsonl").write_bytes((texts / "0.jsonl").read_bytes())
    (folder / "1.jsonl").write_text('{"text": 5}\n')
    words = (f"data.path={folder}", f"data.cache_dir={tmp_path}/c")
    with pytest.raises(FormatError, match=r"1\.jsonl"):
        prepare(_config("pack", texts, *words), progress=quiet)
    with pytest.raises(UserError, match="it has text"):
        prepare(_config("pack", texts, *words, "data.column=body"), progress=quiet)
    assert {path.suffix for path in (tmp_path / "c").iterdir()} == {".lock"}


def _edit_in_the_middle(file: Path) -> None:
    """Change a token after the first 64 KiB, without changing the size of the file."""
    data = bytearray(file.read_bytes())
    at = data.index(b"word", len(data) // 2)
    data[at : at + 4] = b"next"
    file.write_bytes(data)


@pytest.fixture
def long_text(tmp_path: Path) -> Path:
    """Return a jsonl file that is longer than its first and last 64 KiB together."""
    (tmp_path / "long").mkdir()
    line = json.dumps({"text": "a word of a text " * 8}) + "\n"
    (tmp_path / "long" / "a.jsonl").write_text(line * 1500)
    return tmp_path / "long"


@pytest.mark.parametrize("kind", ["text", "pack", "rows", "blocks"])
def test_an_edit_in_the_middle_of_a_file_does_not_go_unnoticed(kind: str, long_text: Path) -> None:
    config = _config(kind, long_text)
    made = prepare(config, progress=quiet)
    file = long_text / "a.jsonl"
    os.utime(file, ns=(1, 1))
    assert prepare(config, progress=quiet).seal == made.seal  # new mtime, same content

    _edit_in_the_middle(file)
    with pytest.raises(
        FormatError, match=r"a\.jsonl.* was edited after the cache .* set another data.cache_dir"
    ):
        prepare(config, progress=quiet)
    assert prepare(config, fingerprint=made.fingerprint, progress=quiet).seal == made.seal
    anew = prepare(_config(kind, long_text, f"data.cache_dir={long_text}-anew"), progress=quiet)
    assert anew.seal != made.seal


@pytest.mark.parametrize("kind", ["text", "pack"])
def test_an_edit_while_a_cache_is_built_ends_the_build(
    kind: str, long_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = spool.framed

    def edited(*args: Any) -> Any:
        if not edits:
            edits.append(_edit_in_the_middle(long_text / "a.jsonl"))
        return encode(*args)

    edits: list[None] = []
    monkeypatch.setattr(spool, "framed", edited)
    with pytest.raises(FormatError, match="was edited"):
        prepare(_config(kind, long_text), progress=quiet)
    assert {path.suffix for path in long_text.with_name("long-cache").iterdir()} == {".lock"}
    prepare(_config(kind, long_text), progress=quiet)


def test_files_named_by_eval_match_validate_and_do_not_train(texts: Path) -> None:
    prepared = prepare(_config("pack", texts, "data.eval_match=1.jsonl"), progress=quiet)
    assert prepared.rows("valid", RowShape(LENGTH, BATCH, 0)).rows == 220


def test_an_epoch_ends(texts: Path) -> None:
    with pytest.raises(
        UserError, match=r"\[data.epochs\] 1 passes have \d+ batches of 2 sequences, and train.steps=4000"
    ):
        Trainer(_config("pack", texts, "data.epochs=1", "train.steps=4000"))
    with pytest.raises(UserError, match="no end"):
        Trainer(_config("synthetic", texts, "data.epochs=1"))


def test_bad_input(texts: Path, tmp_path: Path) -> None:
    def refused(*words: str, kind: str = "pack") -> str:
        with pytest.raises(UserError) as error:
            prepare(_config(kind, texts, *words), progress=quiet).rows("train", RowShape(LENGTH, BATCH, 0))
        return str(error.value)

    assert "it has text" in refused("data.column=body")
    assert "did you mean pack" in refused(kind="packs")
    assert "there is no file" in refused(kind="nothing.py:reader")
    assert "expected at least" in refused("train.batch_size=2", f"data.path={texts}/0.jsonl", kind="rows")
    assert "model.vocab_size" in refused("model.vocab_size=0", kind="synthetic")
    (tmp_path / "mine.py").write_text("def other(path): return []\n")
    assert "expected a function 'reader'" in refused(kind=f"{tmp_path}/mine.py:reader")
    (tmp_path / "mine.py").write_text("def reader(path):\n    yield 'text'\n    yield [1, 2]\n")
    assert "got the other kind in item 1" in refused(kind=f"{tmp_path}/mine.py:reader")


def test_a_reader_in_a_file(texts: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def reader(path):\n    return (f'line {n} of {path}' for n in range(99))\n")
    prepared = prepare(_config(f"{file}:reader", texts), progress=quiet)
    assert prepared.rows("train", RowShape(LENGTH, BATCH, 0)).parts == ("positions", "segments")


def test_damaged_blocks_are_named(texts: Path, tmp_path: Path) -> None:
    config = _config("blocks", texts, f"data.cache_dir={tmp_path}")
    fingerprint = prepare(config, progress=quiet).fingerprint
    (tmp_path / fingerprint / "cache.json").write_text('{"train_files": [3]}')
    with pytest.raises(FormatError, match=r"it lists .* documents, expected"):
        prepare(config, progress=quiet).rows("train", RowShape(LENGTH, BATCH, 0))


def test_the_rows_of_a_step_are_shown(texts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from mudd_core.tools.data_show import main

    words = [
        "data.pipeline=pack",
        f"data.path={texts}",
        f"data.cache_dir={texts.parent}/{texts.name}-cache",
        "data.tokenizer=bytes",
        "train.batch_size=2",
        "train.seq_len=24",
    ]
    assert main(["--config=tiny.py", "--step=3", *words]) == 0
    shown = capsys.readouterr().out
    assert "sample 4, row 0 of step 3" in shown
    assert "sample 5, row 1 of step 3" in shown
    assert "ignored]" in shown
    assert "segments 1x" in shown
    with pytest.raises(UserError, match="--step"):
        main(["--config=tiny.py", "--step=0"])


def test_validation_files_that_train_too_are_warned_of(
    texts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(_config("pack", texts, f"data.eval_path={texts}/1.jsonl"))
    assert "warning: [data] 1 of the validation files are also used for training" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["blocks", "pack"])
def test_a_validation_may_take_its_first_documents_only(kind: str, texts: Path) -> None:
    def targets(*words: str) -> list[int]:
        trainer = Trainer(_config(kind, texts, "eval.max_batches=0", *words))
        found: list[int] = []
        for batch in trainer._run.components.validation_batches():
            ids = np.asarray(batch["targets"]).reshape(-1)
            found += [int(one) for one in ids if one >= 0]
        assert trainer.validate().targets == len(found)
        return found

    whole, some = targets(), targets("eval.documents=3")
    assert 0 < len(some) < len(whole)
    if kind == "pack":  # blocks split documents at other places
        assert whole[: len(some)] == some
