"""A mixture: each source has the order and the cache that it has alone, from the core, Python and a stream."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixture_cases import BATCH, LENGTH, WORDS, config_of, mix_config, rows_of, write_sources
from mudd_core.base.errors import UserError
from mudd_core.config import Config
from mudd_core.config.fields import replace_path
from mudd_core.config.mix_sources import source_config
from mudd_core.data.pipelines import RowShape, prepare
from mudd_core.data.pipelines.mixture import data as mixture_data
from mudd_core.data.pipelines.mixture.data import MixedData
from mudd_core.data.pipelines.mixture.rows import MixedRows, MixedValidation, sources_of
from mudd_core.run.build.protocols import batch_counts, batches_of
from mudd_core.run.build.rows import held_out_rows, training_rows
from text_settings import quiet


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sources(tmp_path_factory.mktemp("mixture"))


def mixed(config: Config) -> MixedRows:
    rows = rows_of(config)
    assert isinstance(rows, MixedRows)
    return rows


def require_order_of_each(rows: MixedRows, alone: dict[str, Any], samples: int) -> None:
    """Require that the rows of each source, in order, are the rows of the source alone."""
    arrays, sources = rows.arrays(0, samples), rows.sources(0, samples)
    for number, name in enumerate(rows.names):
        wanted = alone[name].arrays(0, int((sources == number).sum()))
        assert set(wanted) == set(arrays)
        for key, array in wanted.items():
            np.testing.assert_array_equal(arrays[key][sources == number], array, err_msg=f"{name} {key}")


@pytest.mark.parametrize("pipeline", ["text", "pack", "blocks"])
def test_the_order_inside_a_source_is_the_order_of_the_source_alone(folder: Path, pipeline: str) -> None:
    config = mix_config(folder, f"data.pipeline={pipeline}", "data.buffer=5")
    rows = mixed(config)
    require_order_of_each(rows, {name: rows_of(source_config(config, name)) for name in rows.names}, 200)
    assert rows.counts(200) == [140, 40, 20]


def test_core_and_python_give_the_same_rows_in_parts_of_any_size(folder: Path) -> None:
    rows = mixed(mix_config(folder))
    whole, core = rows.arrays(0, 64), rows.core
    assert core is not None
    inputs, targets = np.empty((2, 64, LENGTH), np.int32)
    core.fill(0, inputs, targets)
    np.testing.assert_array_equal(inputs, whole["inputs"])
    np.testing.assert_array_equal(targets, whole["targets"])
    for first, count in ((63, 1), (17, 20), (0, 5)):
        np.testing.assert_array_equal(rows.arrays(first, count)["inputs"], inputs[first : first + count])
        core.fill(first, part := np.empty((count, LENGTH), np.int32), np.empty_like(part))
        np.testing.assert_array_equal(part, inputs[first : first + count])


def test_a_phase_changes_the_shares_and_continues_each_source(folder: Path) -> None:
    config = mix_config(folder, "data.mix_phases=10:code:1;20:web:0.5,own:0.5")
    rows = mixed(config)
    require_order_of_each(rows, {name: rows_of(source_config(config, name)) for name in rows.names}, 120)
    assert rows.counts(10 * BATCH) == [28, 8, 4]
    assert rows.counts(20 * BATCH) == [28, 48, 4]
    assert rows.counts(30 * BATCH) == [48, 48, 24]


def test_a_source_has_one_cache_which_other_mixtures_use(folder: Path, tmp_path: Path) -> None:
    cache = f"data.cache_dir={tmp_path}"
    prepare(source_config(mix_config(folder, cache), "web"), progress=quiet)
    prepare(mix_config(folder, cache), progress=quiet)

    built = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/tokens.h5")}
    assert len(built) == 3
    prepare(mix_config(folder, cache, mix="own:3,code:1"), progress=quiet)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/tokens.h5")} == built


def test_a_bpe_is_trained_once_on_all_sources(folder: Path, tmp_path: Path) -> None:
    words = ("data.tokenizer=bpe", "data.vocab_size=300", f"data.cache_dir={tmp_path}", "model.vocab_size=0")
    data = prepare(mix_config(folder, *words), progress=quiet)
    assert isinstance(data, MixedData)
    assert data.tokenizer is not None
    for words_of_source in WORDS.values():  # at most two tokens for a frequent string
        assert len(data.tokenizer.encode(" " + words_of_source.split()[0])) <= 2
    assert len(list(tmp_path.glob("bpe-*.json"))) == 1
    again = prepare(mix_config(folder, *words, mix="web:1,code:5,own:2"), progress=quiet)
    assert again.fingerprint == data.fingerprint
    assert len(list(tmp_path.glob("bpe-*.json"))) == 1


def test_a_resumed_run_finds_its_caches_after_the_texts_have_changed(folder: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    shutil.copytree(folder, texts, ignore=shutil.ignore_patterns("cache"))
    config = mix_config(texts, "data.tokenizer=bpe", "data.vocab_size=300", "model.vocab_size=0")
    first = prepare(config, progress=quiet)
    (texts / "web" / "00.txt").write_text("other words")
    found = prepare(config, fingerprint=first.fingerprint, progress=quiet)
    assert (found.fingerprint, found.seal) == (first.fingerprint, first.seal)
    assert prepare(config, progress=quiet).fingerprint != first.fingerprint
    shutil.rmtree(texts / "cache")
    with pytest.raises(UserError, match="restore the old text"):
        prepare(config, fingerprint=first.fingerprint, progress=quiet)


def test_a_validation_has_the_batches_of_each_source_and_limits_each(folder: Path) -> None:
    config = mix_config(folder, "eval.batch_size=3")
    data = prepare(config, progress=quiet)
    rows = held_out_rows(config, data)
    assert isinstance(rows, MixedValidation)
    counts, found = batch_counts(config, rows), list(batches_of(config, rows, data.tokenizer))
    assert counts == [min(2, -(-of.rows // 3)) for of in rows.of]
    assert len(found) == sum(counts)
    at = 0
    for of, count in zip(rows.of, counts, strict=True):
        for number in range(count):
            np.testing.assert_array_equal(found[at]["targets"], of.arrays(3 * number, 3)["targets"])
            at += 1
    whole = np.concatenate([of.arrays(0, of.rows)["inputs"] for of in rows.of])
    np.testing.assert_array_equal(rows.arrays(0, rows.rows)["inputs"], whole)
    for first in range(0, rows.rows, 5):
        np.testing.assert_array_equal(
            rows.arrays(first, 5)["inputs"][: rows.rows - first], whole[first : first + 5]
        )
    assert (rows.arrays(rows.rows, 2)["targets"] == -1).all()


def test_the_first_batch_is_repeated_with_its_sources(folder: Path) -> None:
    config = mix_config(folder, "data.repeat_batch=true")
    rows = training_rows(config, prepare(config, progress=quiet))
    first, later = rows.arrays(0, BATCH), rows.arrays(8 * BATCH, BATCH)
    np.testing.assert_array_equal(first["inputs"], later["inputs"])
    sources = [sources_of(rows, at, BATCH) for at in (0, 8 * BATCH)]
    assert sources[0] is not None
    assert sources[1] is not None
    assert sources[0].tolist() == sources[1].tolist()
    assert sources_of(rows_of(config_of(folder, f"data.path={folder / 'web'}")), 0, 1) is None


def _jsonl(folder: Path) -> Path:
    for name, words in WORDS.items():
        (folder / name).mkdir()
        lines = [json.dumps({"text": " ".join(words.split()[: 1 + n % 3] * (n % 7 + 1))}) for n in range(80)]
        (folder / name / "train.jsonl").write_text("\n".join(lines) + "\n")
        (folder / name / "valid.jsonl").write_text("\n".join(lines[:9]) + "\n")
    return folder


@pytest.mark.parametrize("pipeline", ["pack", "blocks"])
def test_a_stream_gives_the_rows_of_the_caches_also_after_a_resume(tmp_path: Path, pipeline: str) -> None:
    _jsonl(tmp_path)
    words = [f"data.pipeline={pipeline}", "data.eval_match=valid.jsonl", "data.buffer=5", "data.eval_match="]
    words += [f"data.sources.{name}.eval_match=valid.jsonl" for name in WORDS]
    full = mixed(mix_config(tmp_path, *words, "data.cache=full"))
    shutil.rmtree(tmp_path / "cache")
    config = mix_config(tmp_path, *words, "data.cache=stream")
    streamed, resumed = mixed(config), mixed(config)
    try:
        assert streamed.core is None
        wanted = full.arrays(0, 20 * BATCH)
        for batch in range(20):
            got = streamed.arrays(batch * BATCH, BATCH)
            for name, array in got.items():
                np.testing.assert_array_equal(
                    array, wanted[name][batch * BATCH :][:BATCH], err_msg=f"{batch}"
                )
        place = json.loads(json.dumps(streamed.cursor(20)))
        assert set(place["sources"]) == set(WORDS)
        resumed.go_on(place)
        got, wanted = resumed.arrays(20 * BATCH, BATCH), full.arrays(20 * BATCH, BATCH)
        np.testing.assert_array_equal(got["inputs"], wanted["inputs"])
    finally:
        streamed.close()
        resumed.close()


def test_a_run_ends_with_the_first_or_the_last_source(folder: Path) -> None:
    alone = {name: rows_of(source_config(mix_config(folder), name)).rows for name in WORDS}
    first = mixed(mix_config(folder, "data.mix_until=first"))
    counts, after = first.counts(first.rows), first.counts(first.rows + 1)
    sizes = [alone[name] for name in first.names]
    assert all(count <= size for count, size in zip(counts, sizes, strict=True))
    assert any(count > size for count, size in zip(after, sizes, strict=True))
    last = mixed(mix_config(folder, "data.mix_until=all", "data.sources.own.epochs=2"))
    sizes[2] *= 2
    assert all(count >= size for count, size in zip(last.counts(last.rows), sizes, strict=True))
    before = last.counts(last.rows - 1)
    assert any(count < size for count, size in zip(before, sizes, strict=True))
    assert last.batches(1) == last.rows // BATCH


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["data.sources.own.epochs=1", "train.steps=4000"],
            r"\[data.sources.own.epochs\] the source own ends: 1 pass",
        ),
        (["data.mix_until=all", "data.mix_phases=1:web:1"], "the source (code|own) is never read to its end"),
    ],
)
def test_a_source_that_ends_too_early_or_never_is_refused(
    folder: Path, words: list[str], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        rows_of(mix_config(folder, *words))


def test_errors_about_a_source_name_it(folder: Path, tmp_path: Path) -> None:
    for content in (None, "", "too short"):
        if content is not None:
            (tmp_path / "missing").mkdir(exist_ok=True)
            (tmp_path / "missing" / "a.txt").write_text(content)
        with pytest.raises(UserError, match=r"\[data.sources.own.path\]"):
            rows_of(mix_config(folder, f"data.sources.own.path={tmp_path / 'missing'}"))
        with pytest.raises(UserError, match=r"\[data.sources.own.path\]"):
            words = ("data.tokenizer=bpe", "data.vocab_size=300", "model.vocab_size=0")
            rows_of(mix_config(folder, f"data.sources.own.path={tmp_path / 'missing'}", *words))
    with pytest.raises(UserError, match=r"the corpus is too short.*the source web of data.mix"):
        rows_of(mix_config(folder), shape=RowShape(10**6, BATCH, 7))


def test_sources_with_different_tokenizers_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(config: Config, name: str) -> Config:
        found = source_config(config, name)
        return replace_path(found, "data.tokenizer", "bpe") if name == "own" else found

    monkeypatch.setattr(mixture_data, "source_config", other)
    with pytest.raises(UserError, match="expected one tokenizer for all sources, got bytes for web and bpe"):
        prepare(mix_config(folder, "data.vocab_size=300"), progress=quiet)


def test_a_hundred_sources(folder: Path) -> None:
    names = [f"s{number}" for number in range(100)]
    words = [f"data.mix={','.join(f'{name}:{1 + n}' for n, name in enumerate(names))}"]
    words += [f"data.sources.{name}.path={folder / 'web'}" for name in names]
    rows = mixed(config_of(folder, *words))
    assert rows.core is not None
    assert sum(rows.counts(5050)) == 5050
    assert rows.counts(5050) == list(range(1, 101))
    assert rows.epochs(5050)[99] == 100 / rows.of[0].rows
