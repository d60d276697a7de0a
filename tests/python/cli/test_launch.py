"""The program as a user runs it: training, report, sampling, validation, and all kinds of wrong input."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launched import arguments_of, launched
from mudd_core import checkpoint
from mudd_core.checkpoint import whole_parts
from mudd_core.config import load_config
from tiny_run import ROOT, TinyRun

sys.path[:0] = [str(ROOT / "bench")]

import bench_memory  # noqa: E402
from near import PLANNED  # noqa: E402

STEPS = 24
SHORT = (f"train.steps={STEPS}", "train.save_every=12", "train.eval_every=12")


@pytest.fixture(scope="module")
def finished(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """Return a finished run that tests only read."""
    return TinyRun(tmp_path_factory.mktemp("finished") / "run", tiny_text, SHORT).finished()


def again(run: TinyRun, *words: str) -> TinyRun:
    """Return the run with more arguments; its output goes to another file."""
    return TinyRun(run.workdir, run.text, (*run.words, *words), log_suffix=".again.log")


def copied(run: TinyRun, folder: Path) -> TinyRun:
    """Return a copy of the run that a test may damage."""
    shutil.copytree(run.workdir, folder / "run")
    return TinyRun(folder / "run", run.text, run.words)


def test_the_run_says_what_it_does_and_its_summary_and_log_have_the_hash(finished: TinyRun) -> None:
    lines = finished.output.splitlines()
    summary = finished.summary()
    assert summary["final_hash"] not in finished.output
    assert f"\nfinal hash  {summary['final_hash']}\n" in (finished.workdir / "log.txt").read_text()
    newest = checkpoint.load_newest(finished.checkpoints)
    assert newest is not None and newest.step == STEPS
    weights = {name: array for name, array in newest.tensors.items() if "/" not in name}
    assert checkpoint.final_hash(whole_parts(weights)) == summary["final_hash"]
    steps = [line for line in lines if line.startswith("step ") and "ETA" in line]
    assert len(steps) == STEPS
    pattern = (
        r"step +\d+/24  loss [\d.]+  [\d,]+ tok/s  ETA \w+(?:  (?:busy|slow): [^%]+)?  \d+% of peak  grad [\d.]+  "
        r"lr [\d.e-]+  ppl [\d.e+]+"
    )
    assert all(re.fullmatch(pattern, line) for line in steps), steps[0]
    for part in (
        "schedule  24 steps of 8 x 64 tokens",
        "a sample of what it learned",
        "1 thread, ",
        "--prompt ",
    ):
        assert part in finished.output, part


def test_the_last_two_lines_are_commands_that_work_there(finished: TinyRun) -> None:
    printed = []
    for line in finished.output.splitlines()[-2:]:
        words = arguments_of(line)
        done = launched(finished.workdir.parent, *words)
        assert done.returncode == 0, done.stderr
        printed.append((words[-1], done.stdout))
    assert printed[0][1].startswith(printed[0][0])  # the prompt
    assert printed[1] == ("--html", f"page  {finished.workdir / 'report.html'}\n")


def test_the_loss_falls_and_is_validated(finished: TinyRun) -> None:
    rows = finished.rows()
    losses = [row["loss"] for row in rows if "loss" in row]
    valid = [row for row in rows if "val_loss" in row]
    assert losses[0] > 5.0 and losses[-1] < losses[0] - 0.5
    assert [row["step"] for row in valid] == [12, 24]
    assert valid[1]["val_bits_per_byte"] < valid[0]["val_bits_per_byte"] < 8
    assert list((finished.workdir / "tensorboard").glob("events.*"))


def test_a_finished_run_prints_its_summary_and_trains_no_further(finished: TinyRun) -> None:
    before = (finished.workdir / "metrics.jsonl").read_bytes()
    run = again(finished, "train.log_every=7")
    run.finished()
    assert "is finished." in run.output and run.output.splitlines()[-1] == finished.output.splitlines()[-1]
    assert (finished.workdir / "metrics.jsonl").read_bytes() == before


def test_sampling_is_repeatable_and_greedy_needs_no_seed(finished: TinyRun) -> None:
    def sampled(*words: str) -> str:
        run = again(finished, "--mode=sample", "--prompt", "tree ", "--max-tokens=12", *words)
        run.finished()
        return run.output

    first = sampled("sample.seed=5")
    assert first.startswith("tree ") and len(first) > 10
    assert sampled("sample.seed=5") == first
    assert sampled("sample.seed=6") != first
    greedy = {sampled("sample.temperature=0", f"sample.seed={seed}") for seed in (1, 2)}
    assert len(greedy) == 1


def test_validation_gives_the_number_of_the_run(finished: TinyRun) -> None:
    last = [row for row in finished.rows() if "val_loss" in row][-1]
    run = again(finished, "--mode=validation")
    run.finished()
    assert (
        f"step 24: validation loss {last['val_loss']:.6f}, {last['val_bits_per_byte']:.6f} bits per byte"
        in run.output
    )
    earlier = again(finished, "validate", "--step=12")
    assert earlier.finish() == 2  # a command must be the first argument
    earlier = again(finished, "--mode=validation", "--step=12")
    assert earlier.finish() == 0 and "step 12: validation loss" in earlier.output
    assert again(finished, "--mode=validation", "--step=13").finish() == 2


def test_report_and_data_tell_what_is_there(finished: TinyRun) -> None:
    run = again(finished, "--mode=report")
    run.finished()
    assert "checkpoints: 12, 24" in run.output and "bits/byte" in run.output and "step 24 of 24" in run.output
    run = again(finished, "--mode=data")
    run.finished()
    assert "257 ids" in run.output and "documents" in run.output


# Each case is large compared with the effect of huge pages, and dominated by another kind of memory.
MEMORY_CASES = {
    "activations": ("train.batch_size=256", "model.d_model=256", "model.d_ff=1024"),
    "weights": ("train.batch_size=4", "model.d_model=768", "model.n_layer=4", "model.d_ff=3072"),
    "micro_batch": (
        "train.batch_size=16",
        "train.micro_batch_size=4",
        "model.d_model=768",
        "model.d_ff=3072",
    ),
    "recompute": ("train.batch_size=512", "train.recompute=true", "model.n_head=2", "model.d_model=192"),
}


@pytest.mark.parametrize("case", MEMORY_CASES)
def test_the_plan_predicts_memory_within_a_tenth(case: str, finished: TinyRun, tmp_path: Path) -> None:
    words = ("train.steps=2", "train.eval_every=0", "eval.max_batches=1", *MEMORY_CASES[case])
    run = TinyRun(tmp_path / "run", finished.text, (*words, "--plan")).finished()
    assert not run.workdir.exists()
    predicted = bench_memory.planned_mib(run.output)
    for part in (
        "parameters",
        "per step of",
        "optimizer moments",
        "activations",
        "checkpoint",
        "an estimate",
    ):
        assert part in run.output
    if case == "weights":  # a resume loads the weights and does not initialize others as well
        run = TinyRun(tmp_path / "run", finished.text, (*words, "train.stop_at=1"))
        run.stopped()
    else:
        words = ("train.steps=1", *words[1:])
    meter = (sys.executable, "-S", "-c", bench_memory.METER, str(tmp_path / "peak"))
    run = TinyRun(tmp_path / "run", finished.text, words, prefix=meter)  # this run trains and validates
    run.finished()
    code, peak = (tmp_path / "peak").read_text().split()
    assert code == "0", run.tail
    assert int(peak) / 1024 == pytest.approx(predicted, rel=PLANNED)


def test_the_parameter_table_names_roles_and_decay(finished: TinyRun) -> None:
    run = again(finished, "--params").finished()
    rows = {line.split()[0]: line.split() for line in run.output.splitlines()}
    assert rows["blocks.0.attn.q.w"][4] == "matrix" and rows["blocks.0.attn.q.w"][-1] == "0.1"
    assert rows["final_norm.gain"][-1] == "0" and rows["embed"][-1] == "0"


def empty(path: Path) -> str:
    (path / "t.txt").write_text("")
    return "t.txt"


def shorter_than_a_window(path: Path) -> str:
    (path / "t.txt").write_text("a few words\n")
    return "t.txt"


def missing(path: Path) -> str:
    return "none.txt"


def not_text(path: Path) -> str:
    (path / "t.txt").write_bytes(bytes(range(256)) * 300)
    return "t.txt"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (empty, r"\[data.path\] empty corpus: no UTF-8 text in '.*/t.txt'"),
        (shorter_than_a_window, r"\[data.path\] corpus too small: .* in '.*/t.txt' leave 1 for training"),
        (missing, r"\[data.path\] expected .*got '.*/none.txt': No such file"),
        (not_text, r"\[data.path\] expected UTF-8 text, got other bytes in '.*/t.txt'"),
    ],
)
def test_bad_text_exits_2_and_names_the_file(make: Callable[[Path], str], says: str, tmp_path: Path) -> None:
    name = make(tmp_path)
    words = (f"data.path={tmp_path / name}", f"data.cache_dir={tmp_path / 'cache'}")
    run = TinyRun(tmp_path / "run", tmp_path, words)
    assert run.finish() == 2, run.tail
    error = run.output.splitlines()[-1]
    assert "Traceback" not in run.output and re.search(says, error), error
    assert not (run.workdir / "config.json").exists()  # the corrected command may use the same folder


def test_another_config_in_the_work_directory_exits_2_with_the_list(finished: TinyRun) -> None:
    run = again(finished, "optim.lr=1", "train.seed=4", "train.log_every=9")
    assert run.finish() == 2
    assert "optim.lr: saved 0.003, asked 1.0" in run.output and "train.seed: saved 0, asked 4" in run.output
    assert "log_every: saved" not in run.output


def test_other_text_under_the_same_path_is_noticed(tmp_path: Path) -> None:
    text = tmp_path / "words.txt"
    text.write_text("".join(f"line {number} of the first text\n\n" for number in range(3000)))
    words = (f"data.path={text}", f"data.cache_dir={tmp_path / 'cache'}", "train.steps=4", "train.stop_at=2")
    run = TinyRun(tmp_path / "run", tmp_path, words).stopped()
    shutil.rmtree(tmp_path / "cache")
    text.write_text("".join(f"line {number} of the second text\n\n" for number in range(3000)))
    assert run.finish() == 2
    assert "expected the text and tokenizer of the start of this run" in run.output


def test_a_truncated_cache_exits_65_and_says_what_to_do(finished: TinyRun, tmp_path: Path) -> None:
    shutil.copytree(finished.text.parent / "cache", tmp_path / "cache")
    files = list((tmp_path / "cache").rglob("*.h5"))
    for file in files:
        os.truncate(file, file.stat().st_size // 2)
    run = TinyRun(tmp_path / "run", finished.text, (*SHORT, f"data.cache_dir={tmp_path / 'cache'}"))
    assert run.finish() == 65, run.tail
    assert any(str(file.parent) in run.output for file in files) and "Traceback" not in run.output


def test_checkpoints_that_are_all_damaged_exit_65(finished: TinyRun, tmp_path: Path) -> None:
    run = copied(finished, tmp_path)
    (run.workdir / "summary.json").unlink()
    for file in run.checkpoints.rglob("model-*"):
        os.truncate(file, 100)
    assert run.finish() == 65, run.tail
    assert "no checkpoint verifies" in run.output


FIRST_BAD = (
    r"the first non-finite value is in \w+ \((forward|backward)\)( in (blocks\.\d\.[\w.]+|final_norm))?: "
    r"[\w ]+, float32 \[[\d, ]+\], (-?inf|nan) at \[[\d, ]+\]"
)


def test_a_non_finite_loss_ends_with_76_and_a_name(finished: TinyRun, tmp_path: Path) -> None:
    words = ("optim.lr=1e30", "optim.clip=0", "optim.warmup_steps=0", "train.steps=40", "train.save_every=0")
    run = TinyRun(tmp_path / "run", finished.text, words)
    assert run.finish() == 76, run.tail
    error = run.output.splitlines()[-1]
    assert re.search(r"10 updates in a row with non-finite values, the last at step \d+; " + FIRST_BAD, error)
    assert checkpoint.list_steps(run.checkpoints) == []


def test_debugging_names_the_node_at_once(finished: TinyRun, tmp_path: Path) -> None:
    words = (
        "optim.lr=1e30",
        "optim.clip=0",
        "optim.warmup_steps=0",
        "train.debug_nonfinite=true",
        "train.max_skips=1",
    )
    run = TinyRun(tmp_path / "run", finished.text, words)
    assert run.finish() == 76, run.tail
    (skipped,) = [line for line in run.output.splitlines() if "the update is skipped" in line]
    named, ended = (re.search(FIRST_BAD, line) for line in (skipped, run.output.splitlines()[-1]))
    assert named is not None and ended is not None and named[0] == ended[0]


def test_every_kind_of_config_runs(finished: TinyRun, tmp_path: Path) -> None:
    """Train a GPT-2 from a JSON file, with gradient accumulation and another loss.normalize and schedule."""
    config = json.loads((finished.workdir / "config.json").read_text())
    config["model"] = {"family": "gpt2", "d_model": 32, "n_layer": 2, "n_head": 2, "d_ff": 64}
    file = tmp_path / "gpt2.json"
    file.write_text(json.dumps(config))
    assert load_config(file).model.family == "gpt2"
    words = (
        "train.steps=4",
        "train.micro_batch_size=2",
        "loss.normalize=all_slots",
        "optim.schedule=wsd",
        "optim.decay=all",
    )
    run = TinyRun(tmp_path / "run", finished.text, (f"--config={file}", *words, "sample.max_tokens=2"))
    run.finished()


def test_a_resumed_run_says_so(finished: TinyRun, tmp_path: Path) -> None:
    run = TinyRun(tmp_path / "run", finished.text, SHORT)
    process = run.start()
    try:
        run.wait_for_step(process, 3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 75, run.tail
    finally:
        process.kill()
    run.finished()
    assert "resumes at step" in run.output
    assert run.rows() == finished.rows() and run.summary()["final_hash"] == finished.summary()["final_hash"]
