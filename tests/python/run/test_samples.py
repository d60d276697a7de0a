"""Samples at validations (sample.every): their contents and times; the bits of the training do not change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mudd_core as mc
from event_files import events_of
from fake_runs import rows_of
from mudd_core import _core
from mudd_core.base.errors import FormatError
from mudd_core.base.show.printable import beginning_of, printable
from mudd_core.cli import main
from mudd_core.config import Config, load_config
from mudd_core.dist import Comm
from mudd_core.run.loop import signals
from mudd_core.run.loop import validator as loop_validator
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.ranks.hang_watch import Watch
from mudd_core.run.records.events import Summary
from mudd_core.run.report.progress import Progress
from rank_runs import on_ranks
from tiny_run import CONFIG

FAMILIES = ("transformer_pp", "gpt2", "muddformer", "tokenformer", "mup", "mixtral")
OFTEN = ("sample.every=2", "sample.prompt=the ", "sample.max_tokens=12")


def config_of(text: Path, *words: str, file: str = str(CONFIG)) -> Config:
    base = [
        *(f"data.path={text}", f"data.cache_dir={text.parent / 'cache'}", "data.tokenizer=bytes"),
        *("train.steps=8", "train.save_every=4", "train.eval_every=2", "train.log_every=1"),
        *("train.batch_size=4", "train.threads=1", "eval.max_batches=1"),
    ]
    return load_config(file, [*base, *words])


def train(folder: Path, config: Config) -> Summary:
    with Trainer(config, folder) as trainer:
        return trainer.fit(progress=False)


def steps_of(folder: Path) -> list[int]:
    return [sample.step for sample in mc.load_run(folder).samples]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_samples_change_no_bit_of_any_family(
    tmp_path: Path, tiny_text: Path, family: str, precision: str
) -> None:
    found = []
    for name, words in (("without", ()), ("with", OFTEN)):
        config = config_of(
            tiny_text, "train.steps=4", f"train.precision={precision}", *words, file=f"{family}/tiny.py"
        )
        with Trainer(config, tmp_path / name) as trainer:
            summary = trainer.fit(progress=False)
            # Every update would have to repack the copies that decoding packs.
            found.append((summary.final_hash, trainer.model.store.packed_bytes, rows_of(tmp_path / name)))
    assert found[0] == found[1]
    assert not (tmp_path / "without" / "samples.jsonl").exists()
    run = mc.load_run(tmp_path / "with")
    assert [(sample.step, sample.prompt) for sample in run.samples] == [(2, "the "), (4, "the ")]
    for sample in run.samples[1:]:  # the output of the command `sample` with that checkpoint
        assert mc.load_run(run.checkpoints[sample.step]).generate("the ") == sample.text


def test_a_text_is_written_at_the_first_validation_of_every_so_many_steps(
    tmp_path: Path, tiny_text: Path
) -> None:
    def steps(name: str, *words: str) -> list[int]:
        train(tmp_path / name, config_of(tiny_text, "sample.max_tokens=1", *words))
        return steps_of(tmp_path / name)

    assert steps("each", "sample.every=1", "eval.at_start=true") == [0, 2, 4, 6, 8]
    assert steps("third", "sample.every=3") == [2, 4, 6, 8]
    assert steps("end", "sample.every=100") == [2, 8]


def test_a_crash_leaves_the_texts_of_an_unbroken_run(tmp_path: Path, tiny_text: Path) -> None:
    config = config_of(tiny_text, *OFTEN)
    train(tmp_path / "whole", config)
    whole = (tmp_path / "whole" / "samples.jsonl").read_bytes()
    assert steps_of(tmp_path / "whole") == [2, 4, 6, 8]
    for record in (trainer := Trainer(config, tmp_path / "parts")):  # leaving the loop does not save
        if record.step == 7:
            break
    trainer.close()
    assert steps_of(tmp_path / "parts") == [2, 4, 6]
    lines = (tmp_path / "parts" / "samples.jsonl").read_bytes().splitlines(keepends=True)
    # As if killed between the validation of the checkpoint's step and its sample, and in the middle of a line.
    (tmp_path / "parts" / "samples.jsonl").write_bytes(lines[0] + lines[1][:9])
    train(tmp_path / "parts", config)
    assert (tmp_path / "parts" / "samples.jsonl").read_bytes() == whole


def test_a_rewind_writes_no_text_twice(tmp_path: Path, tiny_text: Path) -> None:
    config = config_of(tiny_text, *OFTEN, "train.save_every=2", "sample.every=1", "train.eval_every=1")
    with Trainer(config, tmp_path / "run") as trainer:
        for record in trainer:
            if record.step == 5:
                break
        trainer.engine.state_tensors(writable=True)["first_moment/embed"][3, 1] = np.nan
        assert trainer.fit(progress=False).rewinds == 1
    assert steps_of(tmp_path / "run") == [1, 2, 3, 4, 5, 6, 7, 8]


def test_the_first_rank_writes_and_the_bits_are_those_of_one_process(tmp_path: Path, tiny_text: Path) -> None:
    config = config_of(tiny_text, *OFTEN, "train.logical_shards=4")
    want = train(tmp_path / "one", config).final_hash
    for name, node_size in (("node", 2), ("nodes", 1)):

        def work(comm: Comm, name: str = name) -> str:
            with Trainer(config, tmp_path / name, comm=comm) as trainer:
                return trainer.fit(progress=False).final_hash

        assert on_ranks(work, 2, node_size) == [want, want]
        assert (tmp_path / name / "samples.jsonl").read_bytes() == (
            tmp_path / "one" / "samples.jsonl"
        ).read_bytes()


def fail(*_: object) -> str:
    raise MemoryError("no memory for a cache")


def test_a_text_that_fails_ends_no_run(
    tmp_path: Path, tiny_text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    want = train(tmp_path / "without", config_of(tiny_text)).final_hash
    monkeypatch.setattr(loop_validator, "write_text", fail)
    with Trainer(config_of(tiny_text, *OFTEN), tmp_path / "run", progress=Progress()) as trainer:
        assert trainer.fit().final_hash == want
    note = "step 2: no sample: no memory for a cache"
    assert [line for line in capsys.readouterr().out.splitlines() if "no sample" in line] == [f"note: {note}"]
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [event["reason"] for event in events if event["event"] == "no sample"] == ["no memory for a cache"]
    assert steps_of(tmp_path / "run") == []


def test_a_stop_cuts_the_text_short_and_the_resumed_run_writes_it(
    tmp_path: Path, tiny_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tiny_text, *OFTEN)
    want = train(tmp_path / "whole", config).final_hash
    real, pieces = loop_validator.write_text, []

    def stopping(
        model: mc.Model, tokenizer: object, prompt: str, settings: object, write: Callable[[str], None]
    ) -> str:
        def slow(text: str) -> None:
            pieces.append(text)
            signals.request("a test")
            write(text)

        return real(model, tokenizer, prompt, settings, slow)  # type: ignore[arg-type]

    monkeypatch.setattr(loop_validator, "write_text", stopping)
    assert train(tmp_path / "parts", config).stopped == "a test" and len(pieces) == 1
    assert steps_of(tmp_path / "parts") == []
    monkeypatch.setattr(loop_validator, "write_text", real)
    _core.clear_requests()
    assert train(tmp_path / "parts", config).final_hash == want
    assert steps_of(tmp_path / "parts") == [2, 4, 6, 8]


def test_each_token_is_a_sign_of_life(
    tmp_path: Path, tiny_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []
    monkeypatch.setattr(Watch, "phase", lambda self, name, step: seen.append((name, step)))
    train(tmp_path / "without", config_of(tiny_text, "train.steps=2"))
    without = seen.count(("evaluate", 2))
    seen.clear()
    train(tmp_path / "run", config_of(tiny_text, "train.steps=2", *OFTEN))
    assert seen.count(("evaluate", 2)) >= without + 12


def test_the_log_has_the_beginning_of_each_text_on_one_line(
    tmp_path: Path, tiny_text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("train.steps=2", "data.tokenizer=bpe", "data.vocab_size=300", "sample.every=1")
    with Trainer(config_of(tiny_text, *words), tmp_path / "run", progress=Progress()) as trainer:
        trainer.fit()
    (sample,) = mc.load_run(tmp_path / "run").samples
    line = f"step 2: sample {beginning_of(sample.text)}"
    assert line in capsys.readouterr().out.splitlines()
    values = [value for event in events_of(tmp_path / "run" / "tensorboard") for value in event.summary.value]
    texts = [value.tensor.string_val[0].decode() for value in values if value.tag == "sample"]
    assert texts == [sample.text]
    other = config_of(tiny_text, *words, "log.style=jax_lm")
    with Trainer(other, tmp_path / "other", progress=Progress()) as trainer:
        trainer.fit()
    assert mc.load_run(tmp_path / "other").samples == [sample] and "sample" not in capsys.readouterr().out


def test_a_text_on_one_line_moves_no_cursor_and_has_an_end() -> None:
    assert beginning_of("a\n  b\x1b[2J\ufffd") == '"a b\\x1b[2J\ufffd"'
    assert beginning_of("x" * 161) == f'"{"x" * 160}..."'


def test_ids_without_a_tokenizer_leave_a_note(
    tmp_path: Path, tiny_text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("data.pipeline=synthetic", "model.vocab_size=300", "train.steps=2", "sample.every=1")
    config = config_of(tiny_text, *words, "train.eval_every=1")
    with Trainer(config, tmp_path / "run", progress=Progress()) as trainer:
        trainer.fit()
    assert capsys.readouterr().out.count("no sample: the data are ids without a tokenizer") == 1


def test_a_damaged_file_is_named(tmp_path: Path, tiny_text: Path) -> None:
    train(tmp_path / "run", config_of(tiny_text, *OFTEN, "train.steps=4"))
    file = tmp_path / "run" / "samples.jsonl"
    file.write_text('{"step": 2, "prompt": 5, "text": ""}\n')
    with pytest.raises(FormatError, match=r"samples\.jsonl.*text of step 2: key 'prompt': expected a string"):
        _ = mc.load_run(tmp_path / "run").samples


def test_sample_continues_the_prompt_of_the_run(
    tmp_path: Path, tiny_text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path / "run", config_of(tiny_text, *OFTEN, "train.steps=4"))
    text = mc.load_run(tmp_path / "run").samples[-1].text
    capsys.readouterr()
    assert main(["report", str(tmp_path / "run")]) == 0
    assert f"\nlast sample: step 4, {beginning_of('the ' + text)}\n" in capsys.readouterr().out
    assert main(["sample", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out == f"{printable('the ' + text)}\n"
    assert main(["sample", str(tmp_path / "run"), "--prompt", "a"]) == 0
    assert capsys.readouterr().out.startswith("a")


def test_a_trainer_without_a_folder_keeps_its_texts(tmp_path: Path, tiny_text: Path) -> None:
    config = config_of(tiny_text, *OFTEN, "sample.every=3")
    with Trainer(config) as trainer:
        trainer.fit(4, progress=False)
        assert [sample.step for sample in trainer.samples] == [2, 4]
        trainer.fit(progress=False)
    train(tmp_path / "run", config)
    assert trainer.samples == mc.load_run(tmp_path / "run").samples


def test_a_run_of_an_earlier_version_resumes(tmp_path: Path, tiny_text: Path) -> None:
    want = train(tmp_path / "whole", config_of(tiny_text)).final_hash
    with Trainer(config_of(tiny_text), tmp_path / "old") as trainer:
        trainer.fit(4, progress=False)
    shutil.copytree(tmp_path / "old", tmp_path / "more")
    file = tmp_path / "more" / "config.json"
    saved = json.loads(file.read_text())
    del saved["sample"]["every"], saved["sample"]["prompt"]
    file.write_text(json.dumps(saved))
    assert train(tmp_path / "more", config_of(tiny_text, "sample.every=1")).final_hash == want
    assert steps_of(tmp_path / "more") == [4, 6, 8]


def test_the_sample_at_the_end_begins_with_the_prompt(
    tmp_path: Path, tiny_text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = [f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'cache'}", "train.steps=1"]
    assert main([f"--config={CONFIG}", f"--workdir={tmp_path / 'run'}", *data, "sample.prompt=the "]) == 0
    text = mc.load_run(tmp_path / "run").generate("the ")
    assert f"{'-' * 72}\nthe {printable(text)}\n{'-' * 72}" in capsys.readouterr().out
