"""The command teach, and tune with --teacher: the file, the loss, resume, ranks, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from chat_cases import turns, write_jsonl
from launched import launched
from mudd_core.cli import main
from mudd_core.data.cache.teacher_file import TeacherFile
from mudd_core.data.pipelines import RowShape, prepare
from mudd_core.data.pipelines.taught import taught
from mudd_core.data.pipelines.text import TextData
from mudd_core.run.loop import signals
from mudd_core.tools.teach import reading
from tune_folders import write_given

FIELDS = (
    *("train.threads=1", "train.seq_len=64", "train.batch_size=4", "train.steps=6", "train.eval_every=3"),
    *("tune.method=full", "optim.lr=0.003"),
)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a base, 40 conversations and a teacher file of the base's own probabilities."""
    folder = write_given(tmp_path_factory.mktemp("teach"), 40, unused_ids=3)
    assert teach(folder, "teacher.h5") == 0
    return folder


def teach(folder: Path, to: str, *words: str, data: str = "chat.jsonl") -> int:
    """Run the command; return its exit code."""
    asked = [f"--base={folder / 'base'}", f"--data={folder / data}", f"--to={folder / to}", "--top=8"]
    return main(["teach", *asked, *words])


def tune(
    folder: Path, run: str, *words: str, teacher: str = "teacher.h5", fields: Sequence[str] = FIELDS
) -> int:
    """Run the command tune with a teacher; return its exit code."""
    asked = [f"--base={folder / 'base'}", f"--data={folder / 'chat.jsonl'}", f"--workdir={folder / run}"]
    return main(["tune", *asked, f"--teacher={folder / teacher}", *fields, *words])


def final_hash(run: Path) -> str:
    return str(json.loads((run / "summary.json").read_text())["final_hash"])


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(given: Path) -> Path:
    """Return a run with the teacher, without a stop."""
    assert tune(given, "whole", "--teacher-weight=0.75") == 0
    return given / "whole"


def test_the_file_has_the_likeliest_tokens_of_each_example(given: Path) -> None:
    file = TeacherFile(given / "teacher.h5", "[test]")
    tokenizer = mc.load(given / "base").tokenizer
    assert tokenizer is not None
    assert file.facts.kept == 8 and file.facts.pipeline == "chat" and len(list(file.keys())) == 40
    first = file.block(next(file.keys()))
    assert first.ids.shape == first.log_probs.shape == (len(first.ids), 8)
    assert (np.diff(first.ids, axis=-1) > 0).all() and (first.ids < tokenizer.vocab_size).all()
    total = sum(len(file.block(key).ids) for key in file.keys())  # noqa: SIM118
    assert total == file.targets
    assert (np.exp(first.log_probs.astype(np.float64)).sum(-1) < 1).all()


def test_a_student_with_the_weights_of_its_teacher_agrees_everywhere(given: Path, whole: Path) -> None:
    validations = [row for row in rows(whole) if "val_loss" in row]
    assert [row["step"] for row in validations] == [0, 3, 6]
    # The sums of a target are rounded to float32.
    assert abs(validations[0]["val_teacher_kl"]) < 1e-6 and validations[0]["val_teacher_agreement"] == 1
    assert validations[-1]["val_teacher_kl"] > 1e-6  # the data pull the student away
    logged = [row for row in rows(whole) if "val_loss" not in row]
    assert all({"teacher_kl", "teacher_agreement"} <= row.keys() for row in logged)


def test_it_prints_divergence_and_agreement(
    given: Path, whole: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert (
        tune(given, "whole", "--teacher-weight=0.75") == 0
    )  # the run is done: the answers are printed again
    text = capfd.readouterr().out
    assert "held-out divergence from the teacher: 0.0000 before" in text.replace("-0.0000", "0.0000")
    assert "held-out agreement with the teacher: 100.0% before" in text


def test_stop_resume_ranks_and_micro_batches_have_equal_bits(given: Path, whole: Path) -> None:
    shutil.copy(given / "teacher.h5", given / "elsewhere.h5")
    assert (
        tune(given, "stopped", "--teacher-weight=0.75", "train.stop_at=2", "train.micro_batch_size=1") == 75
    )
    assert (
        tune(given, "stopped", "--teacher-weight=0.75", "train.micro_batch_size=2", teacher="elsewhere.h5")
        == 0
    )
    assert final_hash(given / "stopped") == final_hash(whole)
    asked = ["--base=base", "--data=chat.jsonl", "--workdir=ranks", "--teacher=teacher.h5", "--ranks=2"]
    done = launched(given, "tune", *asked, "--teacher-weight=0.75", *FIELDS)
    assert done.returncode == 0, done.stderr
    assert final_hash(given / "ranks") == final_hash(whole)
    assert tune(given, "other", "--teacher-weight=0.5") == 0
    assert final_hash(given / "other") != final_hash(whole)


def test_another_file_of_other_probabilities_cannot_continue_a_run(
    given: Path, whole: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert tune(given, "changed", "train.stop_at=2") == 75
    assert teach(given, "fewer.h5", "--top=4") == 0
    assert tune(given, "changed", teacher="fewer.h5") == 2
    assert "teacher" in capfd.readouterr().err


@pytest.mark.parametrize(
    "case, code, text",
    [
        ("cut", 65, "truncated file"),
        ("flipped", 65, "another checksum"),
        ("data", 2, "lacks 40 examples of the data"),
        ("tokenizer", 2, "with another tokenizer"),
        ("missing", 2, "which does not exist"),
    ],
)
def test_wrong_files_are_refused(
    given: Path, tmp_path: Path, case: str, code: int, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("base", "chat.jsonl", "teacher.h5"):
        (shutil.copytree if name == "base" else shutil.copy)(given / name, tmp_path / name)
    file = tmp_path / "teacher.h5"
    content = bytearray(file.read_bytes())
    if case == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif case == "flipped":
        content[len(content) // 3] ^= 1
        file.write_bytes(content)
    elif case == "data":
        write_jsonl(
            tmp_path / "chat.jsonl", [{"messages": turns(f"a dog {n}", f"end {n}")} for n in range(40)]
        )
    elif case == "tokenizer":
        path = tmp_path / "base" / "tokenizer.json"
        path.write_text(path.read_text().replace("<|end_header_id|>", "<|other|>"))
    else:
        file.unlink()
    assert tune(tmp_path, "run") == code
    assert text in capfd.readouterr().err
    if case in ("data", "tokenizer"):  # the run is not started, so the same command works with another file
        assert teach(tmp_path, "right.h5") == 0
        assert tune(tmp_path, "run", teacher="right.h5") == 0


def test_a_failed_or_stopped_teach_leaves_no_file(
    given: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in given.iterdir())
    real, calls = reading.likeliest, []

    def stops(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            signals.request("a test")
        return real(*arguments)

    monkeypatch.setattr(reading, "likeliest", stops)
    assert teach(given, "new.h5") == 75
    assert "no file was written" in capfd.readouterr().err
    monkeypatch.setattr(
        reading, "likeliest", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    assert teach(given, "new.h5") == 74
    assert sorted(path.name for path in given.iterdir()) == before
    assert teach(given, "teacher.h5") == 2 and teach(given, "new.h5", "--top=100000") == 2


def test_text_is_looked_up_by_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("\n".join(f"line {n} is {n * n} long" for n in range(300)))
    data = ["data.path=text.txt", "data.tokenizer=bytes", "train.seq_len=32", "model.max_seq_len=32"]
    size = ["model.d_model=32", "model.n_layer=1", "model.n_head=2", "model.d_ff=48", "train.threads=1"]
    fields = [
        *data,
        *size,
        "train.batch_size=4",
        "train.steps=20",
        "train.eval_every=10",
        "optim.warmup_steps=2",
    ]
    assert main(["--config=tiny.py", "--workdir=big", *fields]) == 0
    assert (
        main(["teach", "--base=big", "--data=text.txt", "--top=16", "--to=t.h5", "data.pipeline=text"]) == 0
    )
    _check_positions(tmp_path / "t.h5", [*fields, "train.seed=3"])
    twin = ["loss.teacher=t.h5", "start.load_parameters_path=big", "train.stop_at=1", "eval.at_start=true"]
    assert main(["--config=tiny.py", *fields, *twin, "--workdir=twin"]) == 75
    same = next(row for row in rows(tmp_path / "twin") if "val_loss" in row)
    # The sums of a sequence are rounded to float32.
    assert abs(same["val_teacher_kl"]) < 1e-6 and same["val_teacher_agreement"] == 1
    student = ["--config=tiny.py", *fields, "loss.teacher=t.h5", "train.seed=3", "eval.at_start=true"]
    assert main([*student, "--workdir=small"]) == 0
    first, *_, last = (row for row in rows(tmp_path / "small") if "val_loss" in row)
    assert last["val_teacher_kl"] < first["val_teacher_kl"]
    assert main([*student, "--workdir=again", "train.stop_at=7"]) == 75
    assert main([*student, "--workdir=again", "train.micro_batch_size=1"]) == 0
    assert final_hash(tmp_path / "again") == final_hash(tmp_path / "small")
    (tmp_path / "text.txt").write_text("another text " * 300)
    assert main([*student, "--workdir=wrong"]) == 2
    assert main([*student, "--workdir=pipeline", "data.pipeline=pack"]) == 2


def _check_positions(path: Path, fields: Sequence[str]) -> None:
    """Check that each training target has the probabilities of its position, which its bytes show."""
    config = mc.load_config("tiny.py", fields)
    data, file = prepare(config), TeacherFile(path, "[test]")
    assert isinstance(data, TextData)
    ids = bytes(data.cache.tokens("train").astype(np.uint8))
    found = taught(data.rows("train", RowShape(32, 4, 3)), file, "train").arrays(5, 8)
    assert found["teacher_ids"].shape == (8, 32, 16)
    for row in range(8):
        first = ids.find(bytes(found["inputs"][row].astype(np.uint8)))
        for t in range(32):
            window, inside = divmod(first + t, 32)
            block = file.block((0, 32 * window))
            assert np.array_equal(found["teacher_ids"][row, t], block.ids[inside])
            assert np.array_equal(found["teacher_log_probs"][row, t], block.log_probs[inside])
