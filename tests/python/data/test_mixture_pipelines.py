"""Mixtures of each pipeline: the order of each source alone, one hash for ranks, micro-batches and stops."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from chat_cases import random_chat, write_folder, write_jsonl
from id_cases import LENGTH, VOCAB, lists, write_feature_rows, write_indexed
from launched import called, launched
from mixture_cases import BATCH, WORDS, config_of
from mudd_core.base.errors import FormatError, UserError
from mudd_core.config import Config
from mudd_core.config.mix_sources import source_config
from mudd_core.config.pipelines import PIPELINES
from mudd_core.data.pipelines import RowShape, prepare
from mudd_core.data.pipelines.mixture.rows import MixedRows, MixedValidation
from mudd_core.run.build.run_tokenizer import own_tokenizer, run_template
from mudd_core.run.store.json_files import read_saved_config
from mudd_core.run.store.run_folder import RunFolder
from text_settings import quiet

MIX = "data.mix=web:0.5,code:0.3,own:0.2"
IN_TEST_MIXTURE = {"text", "pack", "blocks"}


def _rows(folder: Path) -> list[str]:
    draw = random.Random(5)
    for name, words in WORDS.items():
        for split, count in (("train", 40), ("valid", 6)):
            lines = [
                {"text": " ".join(draw.choice(words.split()) for _ in range(1 + n % 5))} for n in range(count)
            ]
            write_jsonl(folder / name / f"{split}.jsonl", [*lines])
    return [f"data.sources.{name}.eval_match=valid" for name in WORDS]


def _features(folder: Path) -> list[str]:
    for number, name in enumerate(WORDS):
        write_feature_rows(folder / name / "train-0", 9 + 4 * number)
        write_feature_rows(folder / name / "valid-0", 5)
    words = [f"data.sources.{name}.eval_match=valid-0" for name in WORDS]
    return [*words, "data.format=parquet", f"model.vocab_size={VOCAB}"]


def _megatron(folder: Path) -> list[str]:
    for name in WORDS:
        write_indexed(folder / name / "x", lists(24, 5, 20))
        write_indexed(folder / name / "held", lists(9, 5, 20))
    words = [f"data.sources.{name}.path={folder / name / 'x'}" for name in WORDS]
    words += [f"data.sources.{name}.eval_path={folder / name / 'held'}" for name in WORDS]
    return [*words, f"model.vocab_size={VOCAB}"]


def _items(folder: Path) -> list[str]:
    """Write indexed sequences of T + 1 ids, which are read in the order of the file."""
    words = _megatron(folder)
    for name in WORDS:
        write_indexed(folder / name / "x", lists(14, LENGTH + 1, LENGTH + 2))
    return words


def _ids(folder: Path) -> list[str]:
    draw = np.random.default_rng(3)
    for number, name in enumerate(WORDS):
        (folder / name).mkdir(parents=True)
        for file, count in (("a.bin", 150 + 40 * number), ("b.u16", 70)):
            draw.integers(0, VOCAB, count).astype("<u2").tofile(folder / name / file)
    return [f"model.vocab_size={VOCAB}"]


def _chat(folder: Path) -> list[str]:
    draw = random.Random(6)
    write_folder(folder / "tokenizer", "chatml")
    write_folder(folder / "other", "zephyr")
    for name in WORDS:
        write_jsonl(folder / name / "a.jsonl", [{"messages": random_chat(draw)} for _ in range(40)])
    (folder / "zephyr.jinja").write_text(
        json.loads((folder / "other" / "tokenizer_config.json").read_text())["chat_template"]
    )
    words = [f"data.tokenizer={folder}/tokenizer", "model.vocab_size=0", "data.sources.code.loss_on=all"]
    return [
        *words,
        f"data.sources.web.template={folder}/zephyr.jinja",
        "data.too_long=cut",
        "data.bad_examples=drop",
    ]


CASES: dict[str, Callable[[Path], list[str]]] = {
    "rows": _rows, "features": _features, "megatron": _megatron, "items": _items, "ids": _ids, "chat": _chat,
}  # fmt: skip


def words_in(folder: Path, case: str) -> list[str]:
    """Write the sources of a case; return the arguments of a mixture of them."""
    words = [MIX, f"data.pipeline={'megatron' if case == 'items' else case}"]
    words += [f"data.sources.{name}.path={folder / name}" for name in WORDS]
    words += [f"train.seq_len={64 if case == 'chat' else LENGTH}", f"data.cache_dir={folder}/cache"]
    return [*words, *CASES[case](folder)]


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Return the folder and the arguments of a mixture."""
    folder = tmp_path_factory.mktemp(request.param)
    return folder, words_in(folder, request.param)


def shape_of(config: Config) -> RowShape:
    return RowShape(config.train.seq_len, BATCH, 7)


def mixed(config: Config) -> MixedRows:
    rows = prepare(config, progress=quiet).rows("train", shape_of(config))
    assert isinstance(rows, MixedRows)
    return rows


def test_each_pipeline_is_tested_as_a_mixture_or_refused() -> None:
    tested = {"megatron" if name == "items" else name for name in CASES}
    assert tested | IN_TEST_MIXTURE == {one.name for one in PIPELINES.values() if one.mixes}
    # tests/python/config/test_mix.py has the messages of the other ones.
    assert {one.name for one in PIPELINES.values() if not one.mixes} == {"pile", "synthetic"}


def test_the_order_inside_a_source_is_the_order_of_the_source_alone(case: tuple[Path, list[str]]) -> None:
    config = config_of(case[0], *case[1])
    rows = mixed(config)
    arrays, sources = rows.arrays(0, 100), rows.sources(0, 100)
    assert np.bincount(sources).tolist() == rows.counts(100) == [50, 30, 20]
    for number, name in enumerate(rows.names):
        one = source_config(config, name)
        alone = prepare(one, progress=quiet).rows("train", shape_of(one))
        wanted = alone.arrays(0, rows.counts(100)[number])
        assert set(wanted) == set(arrays) == {"inputs", "targets", *rows.parts}
        for key, array in wanted.items():
            np.testing.assert_array_equal(arrays[key][sources == number], array, err_msg=f"{name} {key}")
        # The first source is repeated; the maps of megatron's windows have several passes.
        assert number or alone.rows < 50 or alone.batches(1) < 50 // BATCH
    for first, count in ((99, 1), (17, 20), (0, 5)):
        for key, array in rows.arrays(first, count).items():
            np.testing.assert_array_equal(array, arrays[key][first : first + count], err_msg=key)


@pytest.mark.parametrize("until", ["first", "all"])
def test_windows_of_megatron_are_read_once_before_a_source_ends(until: str, tmp_path: Path) -> None:
    config = config_of(tmp_path, *words_in(tmp_path, "megatron"), f"data.mix_until={until}")
    rows = mixed(config)
    counts, inputs, sources = (
        rows.counts(rows.rows),
        rows.arrays(0, rows.rows)["inputs"],
        rows.sources(0, rows.rows),
    )
    ended = 0
    for number, (of, count) in enumerate(zip(rows.of, counts, strict=True)):
        read = {row.tobytes() for row in inputs[sources == number]}
        assert len(read) == min(count, of.rows)
        ended += count >= of.rows
    assert ended == (3 if until == "all" else 1) and max(rows.epochs(rows.rows)) >= 1


def test_the_core_gives_the_rows_of_python(tmp_path: Path) -> None:
    rows = mixed(config_of(tmp_path, *words_in(tmp_path, "rows")))
    whole, core = rows.arrays(0, 60), rows.core
    assert core is not None
    core.fill(0, inputs := np.empty((60, LENGTH), np.int32), targets := np.empty_like(inputs))
    np.testing.assert_array_equal(inputs, whole["inputs"])
    np.testing.assert_array_equal(targets, whole["targets"])


def test_a_validation_has_the_sequences_of_each_source(case: tuple[Path, list[str]]) -> None:
    config = config_of(case[0], *case[1])
    rows = prepare(config, progress=quiet).rows("valid", shape_of(config))
    assert isinstance(rows, MixedValidation)
    whole = rows.arrays(0, rows.rows)
    at = 0
    for name in rows.names:
        one = source_config(config, name)
        alone = prepare(one, progress=quiet).rows("valid", shape_of(one))
        for key, array in alone.arrays(0, alone.rows).items():
            np.testing.assert_array_equal(whole[key][at : at + alone.rows], array, err_msg=f"{name} {key}")
        at += alone.rows
    assert at == rows.rows > 0


def test_ranks_micro_batches_and_stops_have_one_hash(case: tuple[Path, list[str]]) -> None:
    folder, words = case
    sizes = ["model.d_model=16", "model.n_layer=1", "model.n_head=2", "model.d_ff=32", "train.threads=1"]
    sizes += [f"train.batch_size={BATCH}", "train.steps=12", "train.eval_every=6", "eval.max_batches=1"]
    if not any(word.startswith(("model.vocab_size", "data.tokenizer")) for word in words):
        sizes += ["data.tokenizer=bytes", "model.vocab_size=257"]

    def hash_of(name: str, *more: str, stops: bool = False) -> str:
        typed = [
            "--config=tiny.py",
            f"--workdir={folder}/runs/{name}",
            *sizes,
            *words,
            "data.mix_phases=8:own:1",
        ]
        run = launched if "--ranks=2" in more else called
        if stops:
            assert run(folder, *typed, "train.stop_at=7").returncode == 75
        done = run(folder, *typed, *more)
        assert done.returncode == 0, done.stderr
        return str(json.loads((folder / "runs" / name / "summary.json").read_text())["final_hash"])

    whole = hash_of("whole")
    if "data.pipeline=chat" in words:
        require_template_of_first(folder)
    assert hash_of("micro", "train.micro_batch_size=2") == whole
    assert hash_of("ranks", "--ranks=2") == whole
    assert hash_of("stopped", stops=True) == whole
    plan = called(folder, "--config=tiny.py", f"--workdir={folder}/runs/whole", *sizes, *words, "--plan")
    assert plan.returncode == 0, plan.stderr
    shown = called(folder, "data", "show", "--config=tiny.py", *sizes, *words, "--step=2")
    assert shown.returncode == 0, shown.stderr
    heads = [line for line in shown.stdout.splitlines() if line.startswith("sample ")]
    assert {head.rpartition(" ")[2] for head in heads} == {"web", "code"}


def require_template_of_first(folder: Path) -> None:
    """Require that prompts to a run are rendered by the template of its first source, also without the cache."""
    run, wanted = RunFolder(folder / "runs" / "whole"), (folder / "zephyr.jinja").read_text()
    config = read_saved_config(run)
    tokenizer = own_tokenizer(config, run)
    assert tokenizer is not None
    for cache in ("cache", "absent"):
        moved = dataclasses.replace(
            config, data=dataclasses.replace(config.data, cache_dir=str(folder / cache))
        )
        found = run_template(moved, run, tokenizer)
        assert found is not None and found.source == wanted


def test_a_stream_of_rows_gives_the_rows_of_the_caches_also_after_a_resume(tmp_path: Path) -> None:
    words = words_in(tmp_path, "rows")
    full = mixed(config_of(tmp_path, *words)).arrays(0, 25 * BATCH)
    shutil.rmtree(tmp_path / "cache")
    config = config_of(tmp_path, *words, "data.cache=stream")
    streamed, resumed = mixed(config), mixed(config)
    try:
        for batch in range(20):
            for key, array in streamed.arrays(batch * BATCH, BATCH).items():
                np.testing.assert_array_equal(array, full[key][batch * BATCH :][:BATCH], err_msg=f"{batch}")
        resumed.go_on(json.loads(json.dumps(streamed.cursor(20))))
        for batch in range(20, 25):
            for key, array in resumed.arrays(batch * BATCH, BATCH).items():
                np.testing.assert_array_equal(array, full[key][batch * BATCH :][:BATCH], err_msg=f"{batch}")
    finally:
        streamed.close()
        resumed.close()


@pytest.mark.parametrize(
    ("name", "word", "message"),
    [
        (
            "features",
            "train.seq_len=16",
            r"train.seq_len: expected the 8 ids of the rows, .*the source web of",
        ),
        ("features", "data.sources.own.path=absent", r"\[data.sources.own.path\]"),
        ("ids", "data.sources.own.path=absent", r"\[data.sources.own.path\]"),
        ("ids", "model.vocab_size=50", r"(web|code|own)/a.bin.* expected ids from 0 to 49, got"),
        ("megatron", "data.sources.own.path=absent", r"\[data.sources.own.path\]"),
        ("chat", "data.sources.own.path=absent", r"\[data.sources.own.path\]"),
        ("chat", "data.sources.own.template=absent.jinja", r"data.sources.own.template.*absent.jinja"),
        *(
            (name, "data.cache=stream", f"expected data.pipeline=pack, rows or blocks, got {name}")
            for name in ("features", "ids", "megatron", "chat")
        ),
        ("chat", "data.tokenizer=bpe", r"data.pipeline=chat needs a tokenizer.json"),
        ("rows", "data.sources.own.buffer=64", r"\[data.sources.own.path\] expected at least 64 documents"),
    ],
)
def test_mistakes_name_the_source(name: str, word: str, message: str, tmp_path: Path) -> None:
    words = words_in(tmp_path, name)
    with pytest.raises((UserError, FormatError), match=message):
        mixed(config_of(tmp_path, *words, word)).arrays(0, 200)
