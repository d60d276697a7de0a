"""The plan of a mixture: the passes over each source, the end of the run, and what a start would refuse or warn of."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

import mudd_core as mc
from launched import called, launched
from mixture_cases import (
    BATCH,
    LENGTH,
    config_of,
    files_of,
    mix_config,
    mix_words,
    rows_of,
    words_of,
    write_sources,
)
from mudd_core.base.errors import UserError
from mudd_core.config import Config
from mudd_core.data.pipelines import RowShape, cache_to_build, prepare, sizes_before_start
from mudd_core.data.pipelines.mixture.rows import MixedRows
from mudd_core.data.sources.listing import Listing
from mudd_core.run.build.rows import row_shape
from mudd_core.run.build.start_warnings import of_mixture, of_text
from text_settings import quiet


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # without this, a start keeps no hash of files that were written less than two seconds ago
    monkeypatch.setattr(Listing, "is_settled", lambda listing: True)
    return write_sources(tmp_path / "sources")


def text_of(config: Config, folder: Path) -> str:
    return mc.plan(config, folder / "run").text


def lines_of(text: str) -> dict[str, list[str]]:
    """Return the parts of the lines about sources by their names."""
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("  sources"))
    rows = [line[16:].split() for line in lines[at:] if line[:16].strip() in ("", "sources")]
    return {row[0]: row for row in rows if len(row) > 1 and row[1].endswith("%")}


def test_a_plan_writes_nothing_and_estimates_then_counts_the_passes(folder: Path) -> None:
    config = mix_config(folder, "data.tokenizer=bpe", "data.vocab_size=300", "model.vocab_size=0")
    before = text_of(config, folder)
    assert not (folder / "cache").exists()
    assert set(lines_of(before)) == {"web", "code", "own"} and before.count("about ") >= 6
    rows = rows_of(config, shape=row_shape(config))
    assert isinstance(rows, MixedRows)
    kept = sorted(folder.rglob("*"))
    after = lines_of(text_of(config, folder))
    assert sorted(folder.rglob("*")) == kept
    for name, passes, count in zip(rows.names, rows.epochs(40 * BATCH), rows.counts(40 * BATCH), strict=True):
        of = rows.of[rows.names.index(name)]
        wanted = [name, f"{count / (40 * BATCH):.2%}", f"{passes:,.2f}", "passes", "over"]
        assert after[name] == [*wanted, f"{of.rows * LENGTH:,}", "tokens"]


def test_a_plan_after_a_start_builds_no_cache_and_has_the_trained_vocabulary(folder: Path) -> None:
    settings = ["data.tokenizer=bpe", "data.vocab_size=3000", "model.vocab_size=0"]
    alone, mixed = [*settings, f"data.path={folder / 'web'}"], mix_words(folder, *settings)
    prepare(
        config_of(folder, *alone), progress=quiet
    )  # the mixture has another tokenizer, so it needs another cache
    before = text_of(config_of(folder, *mixed), folder)
    assert "for the token cache, to be built in" in before and "vocabulary 3,000\n" in before
    for words in (alone, mixed):
        size = prepare(config_of(folder, *words), progress=quiet).vocab_size
        assert size < 3000
        done = launched(folder, "--config=tiny.py", *words_of(folder, *words), "--workdir=run", "--plan")
        assert done.returncode == 0, done.stderr
        assert "token cache" not in done.stdout and f"vocabulary {size:,}\n" in done.stdout


def test_a_plan_of_records_after_a_start_has_the_trained_vocabulary(folder: Path) -> None:
    records = folder / "web.jsonl"
    texts = [file.read_text() for file in sorted((folder / "web").iterdir())]
    records.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    settings = ["data.tokenizer=bpe", "data.vocab_size=3000", "model.vocab_size=0", f"data.path={records}"]
    config = config_of(folder, *settings)
    assert "vocabulary 3,000\n" in text_of(config, folder) and not (folder / "cache").exists()
    size = prepare(config, progress=quiet).vocab_size
    kept = sorted(folder.rglob("*"))
    assert size < 3000 and f"vocabulary {size:,}\n" in text_of(config, folder)
    assert sorted(folder.rglob("*")) == kept


def test_the_memory_of_a_first_start_is_that_of_one_child_process(folder: Path) -> None:
    settings = ("data.tokenizer=bpe", "data.vocab_size=300")
    one = cache_to_build(config_of(folder, *settings, f"data.path={folder / 'web'}"))
    three = cache_to_build(mix_config(folder, *settings))
    # the sources are encoded one after the other
    assert 0 < one.memory == three.memory and three.text > one.text


def test_the_sizes_of_a_source_that_needs_its_text_are_unknown(folder: Path) -> None:
    words = [
        "data.pipeline=pack",
        *[f"data.sources.{n}.eval_path={folder / n}" for n in ("web", "code", "own")],
    ]
    config = mix_config(folder, *words)
    assert sizes_before_start(config, row_shape(config)) == [None] * 3
    assert "only the start of the run knows its tokens" in text_of(config, folder)


@pytest.mark.parametrize("until", ["first", "all"])
def test_a_plan_names_the_step_at_which_the_mixture_ends(folder: Path, until: str) -> None:
    config = mix_config(folder, f"data.mix_until={until}", "train.steps=4000", "data.mix_phases=")
    assert "steps         about " in text_of(config, folder)
    rows = prepare(config, progress=quiet).rows("train", RowShape(LENGTH, BATCH, 7))
    plan = mc.plan(config, folder / "run")
    assert plan.steps == rows.batches(0)
    said = (
        f"  steps         {plan.steps:,}: data.mix_until={until} ends the run there, before train.steps=4,000"
    )
    assert said in plan.text.splitlines()
    longer = mc.plan(config.replace("train.steps", 3), folder / "run")
    assert longer.steps == 3 and "ends the run there" not in longer.text


def test_a_source_that_is_read_often_is_warned_of_by_name(folder: Path) -> None:
    config = mix_config(folder, "train.steps=2000", mix="web:0.5,own:0.5")
    data = prepare(config, progress=quiet)
    found = of_text(config.replace("train.steps", 1000), data)
    assert found[0].startswith("[data.mix] the run reads 32,000 tokens of the source web, which has only ")
    assert len(found) == 2 and of_text(config.replace("train.steps", 100), data) == []
    text = " ".join(text_of(config, folder).split())
    for name in ("web", "own"):
        assert (
            f"WARNING: [data.mix] the run reads 64,000 tokens of the source {name}, which has only " in text
        )
    assert "WARNING" not in text_of(config.replace("train.steps", 40), folder).replace(
        "WARNING: [data.so", ""
    )
    some = config.replace("data.sources.own.epochs", 1000)
    assert "of the source own, which" not in " ".join(text_of(some, folder).split())


def test_a_source_that_is_read_after_its_own_end_is_warned_of(folder: Path) -> None:
    words = ["data.mix_until=all", "train.steps=4000", "data.mix_phases=", "data.sources.web.epochs=1"]
    config = mix_config(folder, *words, mix="web:0.9,own:0.1")
    said = (
        "[data.sources.web.epochs] the source web ends after 1 pass, and data.mix_until=all repeats it until"
    )
    assert f"WARNING: {said} the others have ended, about " in " ".join(text_of(config, folder).split())
    data, plan = prepare(config, progress=quiet), mc.plan(config, folder / "run")
    assert plan.steps is not None and f"WARNING: {said}" in " ".join(plan.text.split())
    found = of_text(config.replace("train.steps", plan.steps), data)
    assert len(found) == 1 and found[0].startswith(said)
    for other in (
        config.replace("data.sources.web.epochs", 500),
        config.replace("data.mix_until", "first"),
    ):
        assert ".epochs] the source" not in " ".join(text_of(other, folder).split())


def test_an_estimated_source_that_ends_before_train_steps_is_warned_of(folder: Path) -> None:
    config = mix_config(folder, "train.steps=4000", "data.sources.own.epochs=2")
    text = " ".join(text_of(config, folder).split())
    assert (
        "[data.sources.own.epochs] the source own ends after 2 passes, and train.steps=4000 reads it about"
        in text
    )


def test_sources_and_phases_that_no_update_reads_are_warned_of(folder: Path) -> None:
    config = mix_config(folder, "data.mix_phases=39:web:1;40:code:1", mix="web:1,code:1")
    unused, late = of_mixture(config)
    assert unused.startswith("[data.sources] not in data.mix, so never read: own; add own:WEIGHT to data.mix")
    assert late.startswith("[data.mix_phases] no update follows step 40, because train.steps=40")
    text = " ".join(text_of(config, folder).split())
    assert f"WARNING: {unused}" in text and f"WARNING: {late}" in text
    assert of_mixture(mix_config(folder)) == []


def test_a_plan_refuses_what_the_start_refuses(folder: Path) -> None:
    words = [
        "data.pipeline=megatron",
        f"--workdir={folder / 'run'}",
        "--config=tiny.py",
        "model.vocab_size=300",
    ]
    words += ["data.mix=web:0.7,code:0.3", *files_of(folder, "web", "code")]
    plan, run = called(folder, *words, "--plan"), called(folder, *words)
    assert plan.returncode == run.returncode == 2
    assert "data.sources.web.path" in plan.stderr
    assert plan.stderr.splitlines()[-1] == run.stderr.splitlines()[-1]
    ended = mix_config(folder, "train.steps=4000", "data.sources.own.epochs=1")
    prepare(ended.replace("data.sources.own.epochs", 0), progress=quiet)
    with pytest.raises(UserError, match="the source own ends: 1 passes have"):
        text_of(ended, folder)


def test_data_show_refuses_a_step_after_the_end_of_the_mixture(folder: Path) -> None:
    words = [
        "--config=tiny.py",
        "data.mix=web:1,own:1",
        *files_of(folder, "web", "own"),
        "data.tokenizer=bytes",
    ]
    words += [
        f"data.cache_dir={folder / 'cache'}",
        "data.mix_until=first",
        "train.seq_len=16",
        "train.batch_size=4",
    ]
    last = called(folder, "data", "show", *words, "--step=1")
    assert last.returncode == 0, last.stderr
    late = called(folder, "data", "show", *words, "--step=5000")
    assert late.returncode == 2
    assert "[arguments] --step: expected at most " in late.stderr and "(data.mix_until=first)" in late.stderr


def test_data_show_refuses_a_step_after_the_end_of_the_run(folder: Path) -> None:
    words = ["data", "show", "--config=tiny.py", *words_of(folder, f"data.path={folder / 'web'}")]
    assert called(folder, *words, "--step=40").returncode == 0
    late = called(folder, *words, "--step=41")
    assert late.returncode == 2
    assert "--step: expected at most 40, the last step of the run (train.steps=40), got 41" in late.stderr
    words.remove("train.steps=40")
    epochs = called(folder, *words, "train.epochs=1", "--step=100000")
    assert epochs.returncode == 2 and "the last step of the run (train.epochs=1)" in epochs.stderr


@pytest.mark.parametrize("option", ["--data-path", "--data_path", "--train-data-path"])
def test_weights_and_prefixes_of_megatron_are_answered_with_the_line_to_type(
    folder: Path, option: str
) -> None:
    done = called(
        folder, "--config=tiny.py", option, "0.7", "d/web_text", "0.3", "d/code.text", "train.steps=5"
    )
    assert done.returncode == 2
    words = shlex.split(done.stderr.partition("type: ")[2].splitlines()[0])
    assert words[-5:-1] == [
        "data.pipeline=megatron",
        "data.mix=web_text:0.7,code_text:0.3",
        "data.sources.web_text.path=d/web_text",
        "data.sources.code_text.path=d/code.text",
    ]
    assert f"'{option}' is data.mix here" in done.stderr
    odd = called(folder, "--config=tiny.py", option, "0.7", "d/web_text", "0.3")
    assert odd.returncode == 2 and "data.mix=web" not in odd.stderr
