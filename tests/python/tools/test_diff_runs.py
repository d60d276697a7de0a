"""`diff` on runs of several ranks, of user code and in progress, as a user types it in a fresh process."""

from __future__ import annotations

from pathlib import Path

import pytest

from diff_cases import WORDS, diff, diff_json, trained
from launched import arguments_of, called, launched
from places import ROOT
from tiny_run import TinyRun


@pytest.fixture(scope="module")
def folder(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with runs/base."""
    folder = tmp_path_factory.mktemp("diff")
    trained(folder, tiny_text, "base")
    return folder


def test_a_run_of_two_ranks_is_replayed_in_one_process(folder: Path, tiny_text: Path) -> None:
    for name, word in (("ranks", "optim.beta2=0.95"), ("ranks_beta", "optim.beta2=0.9")):
        run = TinyRun(folder / "runs" / name, tiny_text, (*WORDS, word, "--ranks=2"))
        run.finished()
    done = launched(folder, "diff", "runs/base", "runs/ranks")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal through step 12" in done.stdout
    done = launched(folder, "diff", "runs/base", "runs/ranks_beta")
    text = " ".join(done.stdout.split())
    assert done.returncode == 1 and "in step 1, adamw (update): weight of embed" in text, text
    assert "Several ranks trained B by 2; here one process does. The bits do not depend on the ranks." in text


def test_ranks_on_which_the_bits_depend_are_a_setting_that_affects_the_training(
    folder: Path, tiny_text: Path
) -> None:
    for name in ("any", "any_uneven"):
        trained(
            folder,
            tiny_text,
            name,
            "mesh.any_world=true",
            "train.seed=3" if name == "any" else "train.seed=4",
        )
    events = folder / "runs" / "any_uneven" / "events.jsonl"
    events.write_text(events.read_text().replace('"event": "started"', '"event": "started", "ranks": 3'))
    found = diff_json(folder, "any", "any_uneven", code=1)["settings"]
    assert {one["name"]: one["affects_training"] for one in found} == {"train.seed": True, "ranks": True}
    printed = " ".join(launched(folder, "diff", "runs/any", "runs/any_uneven").stdout.split())
    assert "other bits here than in the run: with mesh.any_world its bits depend on its 3 ranks." in printed
    assert "do not depend on the ranks" not in printed


def test_a_run_in_progress_is_replayed_up_to_its_last_step(folder: Path, tiny_text: Path) -> None:
    words = ("train.steps=100000", "train.save_every=100000", "optim.beta2=0.9", "train.eval_every=100000")
    run = TinyRun(folder / "runs" / "live", tiny_text, words)
    process = run.start()
    try:
        run.wait_for_step(process, 4)
        done = launched(folder, "diff", "runs/base", "runs/live")
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    text = " ".join(done.stdout.split())
    assert done.returncode == 1, done.stderr
    assert "B is in progress: it is compared through its last complete step" in text
    assert "train.steps config 12 100000" in text
    assert "in step 1, adamw (update): weight of embed" in text


OWN = (ROOT / "examples" / "adamw.py").read_text()
EDITED = OWN.replace("w -= lr /", "w -= 0.5 * lr /")


def test_user_code_that_was_edited_between_two_runs_is_compared_by_records(
    folder: Path, tiny_text: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    for name, text in (("own", OWN), ("own_edited", EDITED)):
        file.write_text(text)
        trained(folder, tiny_text, name, f"optim.name={file}:adamw")
    file.unlink()  # the copies in the folders of the runs are used
    done = launched(folder, "diff", "runs/own", "runs/own_edited")
    assert done.returncode == 2 and "code of optim.name" in done.stdout
    assert "[diff] optim.name: expected one code of this name, got two" in done.stderr
    for command in done.stderr.strip().partition("b.jsonl: ")[2].split("; "):
        assert launched(folder, *arguments_of(command)).returncode == 0
    done = launched(folder, "diff", "a.jsonl", "b.jsonl")
    assert done.returncode == 1 and "(update): weight of embed" in done.stdout, done.stdout + done.stderr
    assert "hash of own code" in done.stdout and "settings: 1 differs" in done.stdout, done.stdout


def test_two_files_of_user_code_are_replayed(folder: Path, tiny_text: Path, tmp_path: Path) -> None:
    for name, text in (("one_file", OWN), ("other_file", EDITED)):
        file = tmp_path / f"{name}.py"
        file.write_text(text)
        trained(folder, tiny_text, name, f"optim.name={file}:adamw")
        file.unlink()
    done = launched(folder, "diff", "runs/one_file", "runs/other_file")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "in step 1, " in done.stdout and "(update): weight of embed" in " ".join(done.stdout.split())


def test_one_model_function_in_two_folders_is_compared(folder: Path, tiny_text: Path, tmp_path: Path) -> None:
    text = (ROOT / "examples" / "parallel.py").read_text()
    short = (
        "train.steps=2",
        "train.save_every=2",
        "train.eval_every=2",
        "train.log_every=1",
        "eval.max_batches=1",
    )
    for name in ("model_a", "model_b", "model_c"):
        (tmp_path / name).mkdir()
        file = tmp_path / name / "parallel.py"
        file.write_text(text if name != "model_c" else text.replace('"gelu_tanh"', '"gelu_erf"'))
        trained(folder, tiny_text, name, f"model.family={file}:Parallel", *short)
    assert "model.family *" in diff(folder, "model_a", "model_b", code=0)
    assert "(forward) in blocks.0.up" in diff(folder, "model_a", "model_c", code=1)
    for name in ("model_a", "model_b"):
        done = called(folder, "diff", f"--record=runs/{name}", "--step=1", f"--to={name}.jsonl")
        assert done.returncode == 0, done.stderr
        assert str(tmp_path) not in (folder / f"{name}.jsonl").read_text()
    assert "own code" not in diff(folder, "model_a.jsonl", "model_b.jsonl", code=0)
    assert "hash of own code" in diff(folder, "runs/model_c", "model_a.jsonl", code=1)


def test_user_code_of_another_machine_runs_only_with_trust_code(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # a user who has started no run
    done = launched(folder, "diff", "runs/one_file", "runs/other_file")
    assert done.returncode == 2 and "--trust-code" in done.stderr, done.stderr
    assert "first step that differs" in done.stdout
    done = launched(folder, "diff", "runs/one_file", "runs/other_file", "--trust-code")
    assert done.returncode == 1, done.stderr
