"""mc.load_run of a work directory: its contents, also while it trains, without a lock and without its text."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import mudd_core as mc
from mudd_core.base.errors import FormatError, UserError
from tiny_run import TinyRun


@pytest.fixture(scope="module")
def trained(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    run = TinyRun(
        tmp_path_factory.mktemp("opened") / "runs" / "tiny",
        tiny_text,
        ("train.steps=24", "train.eval_every=8"),
    )
    run.workdir.parent.mkdir()
    return run.trained()


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the size and the modification time of every file."""
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}


def test_a_run_gives_its_parts_and_nothing_is_written(trained: TinyRun) -> None:
    before = files_of(trained.workdir)
    run = mc.load_run(trained.workdir)
    rows = [row for row in trained.rows() if "loss" in row]
    assert (run.step, list(run.checkpoints)) == (24, [16, 24]) and run.path == trained.workdir
    assert run.config.train.steps == 24 and run.config.name == "tiny_run"
    assert run.metrics["step"].tolist() == list(range(1, 25)) and run.metrics["step"].dtype == np.int64
    assert run.metrics["loss"].tolist() == [row["loss"] for row in rows]
    assert run.validations["step"].tolist() == [8, 16, 24] and run.validations["val_loss"].dtype == np.float64
    assert run.tokenizer is not None and run.tokenizer.encode("ab") == [97, 98]
    assert run.model(np.array([1, 2, 3])).shape == (3, 257)
    assert files_of(trained.workdir) == before


def test_the_model_is_that_of_the_checkpoint_asked_for(trained: TinyRun) -> None:
    run = mc.load_run(trained.workdir)
    first = mc.load_run(trained.workdir, step=16)
    again = mc.load_run(run.checkpoints[16])
    newest = mc.load_run(trained.workdir / "checkpoints")
    assert (first.step, again.step, newest.step) == (16, 16, 24)
    ids = np.arange(9)
    assert np.array_equal(first.model(ids), again.model(ids)) and np.array_equal(
        run.model(ids), newest.model(ids)
    )
    assert not np.array_equal(run.model(ids), first.model(ids))
    model, tokenizer = mc.load(run.checkpoints[16])
    assert np.array_equal(model(ids), first.model(ids)) and tokenizer is not None
    with mc.Trainer(trained.workdir) as trainer:
        assert trainer.final_hash() == trained.summary()["final_hash"]
        assert all(
            np.array_equal(view, run.model.parameters[name])
            for name, view in trainer.model.parameters.items()
        )


def test_generate_writes_what_the_command_writes(trained: TinyRun) -> None:
    done = subprocess.run(
        [
            *trained.command()[:2],
            "sample",
            f"--workdir={trained.workdir}",
            "--prompt=the ",
            "sample.max_tokens=9",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    run, pieces = mc.load_run(trained.workdir), []
    text = run.generate("the ", max_tokens=9, write=pieces.append)
    assert done.stdout == f"the {text}\n" and "".join(pieces) == text
    assert run.generate("the ", max_tokens=9, temperature=0, seed=3) == run.generate(
        "the ", max_tokens=9, temperature=0
    )


def test_curves_are_pictures_and_characters(trained: TinyRun, tmp_path: Path) -> None:
    run = mc.load_run(trained.workdir)
    curve = run.plot()
    assert "<svg" in curve._repr_html_() and ">validation<" in curve.svg() and "polyline" in curve.svg()
    lines = repr(curve).splitlines()
    assert "tiny_run" in lines[0] and all(len(line) <= 80 for line in lines) and len(lines) == 17
    assert sum(line.count("o") for line in lines[1:-1]) == 3 and "24" in lines[-1]
    assert curve.save(tmp_path / "loss.svg").read_text().startswith("<svg")
    assert "grad_norm" in run.plot("grad_norm").svg() and "val_ppl" in run.plot("val_ppl").svg()
    with pytest.raises(ValueError, match=r"\[plot\] name: .* got 'los'; did you mean 'loss'\?"):
        run.plot("los")


def test_a_run_is_read_while_it_trains(tiny_text: Path, tmp_path: Path) -> None:
    run = TinyRun(
        tmp_path / "run", tiny_text, ("train.steps=100000", "train.save_every=2", "train.precision=bf16")
    )
    process = run.start()
    try:
        run.wait_for_step(process, 3)
        opened = mc.load_run(tmp_path / "run")
        seen = []
        for _ in range(20):  # checkpoints appear and disappear meanwhile
            now = mc.load_run(tmp_path / "run")
            seen.append((now.step, opened.metrics.rows))
            assert np.isfinite(now.model(np.arange(5))).all() and now.model.precision == "bf16"
        run.wait_for_step(process, run.step_printed() + 5)
        assert opened.metrics.rows > seen[0][1] >= 3 and seen[-1][0] > seen[0][0] >= 2
        assert opened.generate("a", max_tokens=3) is not None
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(30)
    assert mc.load_run(tmp_path / "run").metrics["step"][-1] == run.summary()["step"]


def test_a_fresh_process_needs_neither_the_text_nor_the_cache(trained: TinyRun, tmp_path: Path) -> None:
    shutil.copytree(trained.workdir, tmp_path / "elsewhere")
    file = tmp_path / "elsewhere" / "config.json"
    config = json.loads(file.read_text())
    config["data"] |= {"path": "/nowhere", "cache_dir": str(tmp_path / "no_cache")}
    file.write_text(json.dumps(config))
    code = (
        "import mudd_core as mc; run = mc.load_run('elsewhere'); print(run.step, run.metrics, run.plot()); "
        "print(len(run.generate('a', max_tokens=4)) > 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert (
        done.stdout.startswith("24 Metrics(24 rows, steps 1 to 24: step, tokens, loss")
        and "True" in done.stdout
    )
    assert done.stderr == "" and not (tmp_path / "no_cache").exists()


def test_metrics_become_a_data_frame_where_pandas_is(
    trained: TinyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = mc.load_run(trained.workdir)
    frame = run.metrics.to_pandas()
    assert frame.index.name == "step" and frame.loc[24, "loss"] == run.metrics["loss"][-1]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ValueError, match=r"\[metrics\] to_pandas: .*; install it: .*pip install pandas"):
        run.metrics.to_pandas()


def wrong_paths(trained: TinyRun, tmp_path: Path) -> Iterator[tuple[Path, str]]:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("a")
    yield tmp_path / "emty", "which does not exist; did you mean"
    yield tmp_path / "empty", "which is none of them"
    yield tmp_path / "text", "which is none of them"
    yield trained.workdir / "metrics.jsonl", "which is none of them"
    yield trained.workdir / "checkpoints" / "step-3", "which does not exist; did you mean"
    yield Path("gs://bucket/run"), "expected a local path, got the URL"


def test_other_paths_are_refused_in_one_line(trained: TinyRun, tmp_path: Path) -> None:
    for path, says in wrong_paths(trained, tmp_path):
        with pytest.raises(ValueError, match=re.escape(says)) as caught:
            mc.load_run(path)
        assert str(caught.value).startswith("[load_run] path: expected") and "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="has no checkpoint of step 7; steps there: 16, 24"):
        _ = mc.load_run(trained.workdir, step=7).model
    with pytest.raises(ValueError, match=r"expected 16, the step of .*, got 24"):
        mc.load_run(trained.workdir / "checkpoints" / "step-16", step=24)
    with pytest.raises(TypeError, match=r"for token ids call run\.model\.generate"):
        mc.load_run(trained.workdir).generate([1, 2])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"sample\.top_k: expected at least 0, got -1"):
        mc.load_run(trained.workdir).generate("a", top_k=-1)


def test_a_name_without_runs_is_completed(trained: TinyRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained.workdir.parent.parent)
    with pytest.raises(ValueError, match=r"got 'tiny', which does not exist; did you mean 'runs/tiny'\?"):
        mc.load_run("tiny")
    assert mc.load_run("runs/tiny").step == 24


def test_a_run_without_a_checkpoint_gives_what_it_has(trained: TinyRun, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(trained.workdir, path)
    shutil.rmtree(path / "checkpoints")
    (path / "metrics.jsonl").unlink()
    run = mc.load_run(path)
    assert (run.checkpoints, run.metrics, run.metrics.rows) == ({}, {}, 0) and run.config.train.steps == 24
    with pytest.raises(ValueError, match="has no checkpoint yet; train first"):
        _ = run.model
    with pytest.raises(ValueError, match="has logged nothing yet"):
        run.plot()


def test_a_damaged_newest_checkpoint_is_passed_over_with_a_warning(
    trained: TinyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained.workdir, tmp_path / "run")
    file = next((tmp_path / "run" / "checkpoints" / "step-24").glob("model*.safetensors"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert mc.load_run(tmp_path / "run").step == 16
    assert "warning: step 24 passed over" in capsys.readouterr().err
    with pytest.raises(FormatError):
        _ = mc.load_run(tmp_path / "run", step=24).model


def test_a_step_without_a_checkpoint_fails_at_once(trained: TinyRun) -> None:
    with pytest.raises(UserError, match=r"step: .* has no checkpoint of step 99; steps there: 16, 24"):
        mc.load_run(trained.workdir, step=99)


def test_a_list_of_prompts_has_a_text_for_each(trained: TinyRun) -> None:
    run = mc.load_run(trained.workdir)
    texts = run.generate(["the ", "a "], max_tokens=5, seed=3)
    assert texts == [run.generate(prompt, max_tokens=5, seed=3) for prompt in ("the ", "a ")]
    assert run.generate([], max_tokens=5) == []


def test_a_stream_yields_the_text_and_shows_it(trained: TinyRun) -> None:
    run = mc.load_run(trained.workdir)
    stream = run.generate("the ", max_tokens=6, seed=3, stream=True)
    assert repr(stream) == "TextStream(after 'the ': nothing yet; iterate over it, or read .text)"
    pieces = list(stream)
    assert len(pieces) > 1 and "".join(pieces) == stream.text == run.generate("the ", max_tokens=6, seed=3)
    assert repr(stream.text)[:20] in repr(stream)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ([[1, 2]], {}, "expected a string or a list of strings, got a value of type int"),
        ([3], {}, "expected a string or a list of strings, got a value of type int"),
        ([["a", "b"]], {"stream": True}, "expected one prompt, got a list"),
        (["a"], {"max_new_tokens": 3}, r"type generate\(prompt, max_tokens=100\)"),
        (["a"], {"tokens": 3}, "the arguments are prompt, stream, max_tokens"),
    ],
)
def test_wrong_arguments_of_generate(
    arguments: list[object], options: dict[str, object], message: str, trained: TinyRun
) -> None:
    run = mc.load_run(trained.workdir)
    with pytest.raises((TypeError, ValueError), match=message):
        run.generate(*arguments, **options)  # type: ignore[call-overload]


def test_a_run_of_a_named_step_shows_this_step(trained: TinyRun) -> None:
    found = mc.load_run(trained.workdir, step=16)
    place = found.metrics["step"].tolist().index(16)
    text = f"step 16 of 24; loss {found.metrics['loss'][place]:.4f} nats; "
    assert text in repr(found) and text in repr(mc.load_run(trained.workdir / "checkpoints" / "step-16"))
    assert f"tokens {found.metrics['tokens'][place]:,}; " in repr(found)


def test_the_date_of_a_run_does_not_change_when_it_is_opened(trained: TinyRun, tmp_path: Path) -> None:
    copy = shutil.copytree(trained.workdir, tmp_path / "run")
    for file in copy.rglob("*"):
        os.utime(file, (0, 0))
    before = repr(mc.load_run(copy))
    mc.Trainer(copy).close()
    assert "date 19" in before and repr(mc.load_run(copy)) == before


def test_a_run_shows_step_loss_tokens_and_date(trained: TinyRun) -> None:
    run = mc.load_run(trained.workdir)
    text = repr(run)
    loss, tokens = run.metrics["loss"][-1], run.metrics["tokens"][-1]
    assert text.startswith("Run('tiny_run': model transformer_pp; step 24 of 24; ")
    assert f"loss {loss:.4f} nats; folder {trained.workdir}; tokens {tokens:,}; date 2" in text
    assert "<th" in run.metrics._repr_html_() and "..." in run.metrics._repr_html_()
    assert run.validations._repr_html_().count("<tr>") == 4  # the names, and three validations
    with pytest.raises(AttributeError, match=r"type run\.metrics"):
        run.history  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"type mc\.tune\(run, "):
        run.finetune  # type: ignore[attr-defined]  # noqa: B018
