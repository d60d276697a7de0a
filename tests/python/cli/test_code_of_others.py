"""Code in a run's folder is used only if the run is this user's, the command names the file, or the user consents."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.config.saved import from_dict
from own_cases import ADAMW, PLUS, plus_file
from places import ROOT
from tiny_run import TinyRun

SHORT = ("train.steps=4", "train.save_every=2", "train.eval_every=2", "train.log_every=1")
FILES = {
    "model.family": "model_family.py",
    "optim.name": "optim_name.py",
    "optim.groups": "optim_groups.py",
    "data.pipeline": "data_pipeline.py",
}
READER = "def read(path):\n    for n in range(400):\n        yield f'{n} and {n + 1} are {2 * n + 1}. ' * 4\n"


def command(*words: str, state: Path | None = None) -> tuple[int, str]:
    """Return the exit code and both streams of launch.py. state: the folder with another user's list of started
    runs.
    """
    argv = [sys.executable, str(ROOT / "launch.py"), *words]
    others = {} if state is None else {"XDG_STATE_HOME": str(state)}
    done = subprocess.run(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | others
    )
    return done.returncode, done.stdout


def change(file: Path, key: str, value: str) -> None:
    """Set a value of a JSON file."""
    found = json.loads(file.read_text())
    section, _, name = key.partition(".")
    found[section][name] = value
    file.write_text(json.dumps(found))


def plant(work: Path, key: str, text: str, value: str, *, named: bool = True) -> None:
    """Add code to the folder of a run, with its hash in run.json. named: the config names the code too."""
    (work / FILES[key]).write_text(text)
    run = json.loads((work / "run.json").read_text())
    own = {"name": value, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    run["own_files"] = {**run.get("own_files", {}), key: own}
    (work / "run.json").write_text(json.dumps(run))
    if named:
        change(work / "config.json", key, f"{value}: head" if key == "optim.groups" else value)


@pytest.fixture(scope="module")
def plain(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished run without code."""
    work = tmp_path_factory.mktemp("plain") / "run"
    TinyRun(work, tiny_text, SHORT).finished()
    return work


@pytest.fixture
def work(plain: Path, tmp_path: Path) -> Path:
    """Return a copy of that run, to which tests add files."""
    return Path(shutil.copytree(plain, tmp_path / "run"))


@pytest.fixture(scope="module")
def own(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a stopped run and plus.py; its model, optimizer and reader are the user's files."""
    folder = tmp_path_factory.mktemp("own")
    plus_file(folder)
    (folder / "mine.py").write_text(READER)
    run = TinyRun(folder / "run", tiny_text, named_files(folder, "train.stop_at=2"))
    run.stopped()
    return folder


def named_files(folder: Path, *words: str) -> tuple[str, ...]:
    """Return the arguments of the command that started the run of `own`."""
    names = (
        f"--model.family={folder}/plus.py:Plus",
        f"optim.name={ADAMW}",
        f"data.pipeline={folder}/mine.py:read",
    )
    return (*names, *SHORT, *words)


@pytest.fixture
def moved(own: Path, tmp_path: Path) -> Path:
    """Return a copy of that folder, as it would be on another machine."""
    return Path(shutil.copytree(own, tmp_path / "moved"))


def planted(mark: Path) -> str:
    """Return code that creates a file when it runs."""
    return f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n"


READING = (["report"], ["report", "--html"], ["sample", "--prompt=ab", "sample.max_tokens=3"])


@pytest.mark.parametrize("words", [*READING, ["train.stop_at=0"]])
def test_copies_that_the_config_does_not_name_never_run(words: list[str], work: Path, tmp_path: Path) -> None:
    for key in FILES:
        plant(work, key, planted(tmp_path / "mark"), "x.py:X", named=False)
    code, said = command(*words, f"--workdir={work}", "--trust-code")
    assert code == 0 and not (tmp_path / "mark").exists(), said


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["report"], ""),
        (["compare", "OTHER"], ""),
        (["sample", "--prompt=ab", "sample.max_tokens=3"], "model.family data.pipeline"),
        (["data", "show"], "data.pipeline"),
        (["export", "--to=OUT"], "model.family data.pipeline"),
        (["profile", "--steps=1", "--warmup=1"], "model.family optim.name optim.groups data.pipeline"),
        (["--plan"], "model.family optim.name optim.groups data.pipeline"),
    ],
)
def test_code_from_elsewhere_is_refused_if_it_is_needed_and_else_not_run(
    words: list[str], needed: str, work: Path, plain: Path, tmp_path: Path
) -> None:
    config = (work / "config.json").read_text()
    words = [word.replace("OUT", str(tmp_path / "out")).replace("OTHER", str(plain)) for word in words]
    for key, file in FILES.items():
        (work / "config.json").write_text(config)
        plant(work, key, planted(tmp_path / "mark"), "x.py:X")
        folder = [str(work)] if words[0] == "compare" else [f"--workdir={work}"]
        code, said = command(*words, *folder)
        assert not (tmp_path / "mark").exists(), said
        assert key in needed or code == 0, said
        assert key not in needed.split() or (code == 2 and f"{work}/{file}: expected the code" in said), said
        shutil.rmtree(tmp_path / "out", ignore_errors=True)


def test_python_reads_a_run_from_elsewhere_without_its_code(work: Path, tmp_path: Path) -> None:
    plant(work, "model.family", planted(tmp_path / "mark"), "x.py:X")
    run = mc.load_run(work)
    assert run.metrics.rows == 4 and run.checkpoints and repr(run) and run._repr_html_()
    for use in (
        lambda: run.model,
        lambda: mc.load(work),
        lambda: mc.Trainer(work),
        lambda: mc.Trainer(run.config),
    ):
        with pytest.raises(UserError, match=r"model.family"):
            use()
    assert not (tmp_path / "mark").exists()
    with pytest.raises(UserError, match="is missing"):  # the added code registers no class
        mc.load_run(work, trust_code=True).model  # noqa: B018
    assert (tmp_path / "mark").exists()


def test_a_file_on_the_disk_that_a_saved_config_alone_names_never_runs(work: Path, tmp_path: Path) -> None:
    file = tmp_path / "evil.py"
    for key in FILES:
        file.write_text(planted(tmp_path / "mark"))
        config = (work / "config.json").read_text()
        change(work / "config.json", key, f"{file}:read: head" if key == "optim.groups" else f"{file}:read")
        code, said = command("validate", f"--workdir={work}", "--trust-code")
        assert not (tmp_path / "mark").exists(), said
        assert key in ("optim.name", "optim.groups") or (
            code == 2 and "a command runs only the files that its arguments name" in said
        ), said
        saved = from_dict(json.loads((work / "config.json").read_text()))
        with pytest.raises(UserError, match=r"a command runs only the files that its arguments name"):
            mc.Trainer(saved, tmp_path / "new")
        assert not (tmp_path / "mark").exists()
        (work / "config.json").write_text(config)


def test_runs_of_this_user_go_on_without_a_word(own: Path, moved: Path) -> None:
    code, said = command("sample", f"--workdir={own}/run", "--prompt=ab", "sample.max_tokens=3")
    assert code == 0, said
    code, said = command(f"--workdir={moved}/run", "train.stop_at=3")  # the same run in another folder
    assert code == 75, said


def test_the_id_of_a_run_of_this_user_does_not_cover_other_code(moved: Path, tmp_path: Path) -> None:
    name = json.loads((moved / "run" / "config.json").read_text())["model"]["family"]
    plant(moved / "run", "model.family", planted(tmp_path / "mark") + PLUS, name)
    code, said = command("sample", f"--workdir={moved}/run", "--prompt=ab")
    assert code == 2 and "expected the code of a run that you started" in said, said
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("run_id", ["../../../known", "0123456789abcdef", "/known", "", "x" * 300])
def test_an_id_names_no_file_outside_and_a_made_up_one_is_unknown(run_id: str, moved: Path) -> None:
    file = moved / "run" / "run.json"
    facts = json.loads(file.read_text())
    hashes = {key: one["sha256"] for key, one in facts["own_files"].items()}
    (moved / "known.json").write_text(json.dumps(hashes))
    file.write_text(json.dumps({**facts, "run_id": run_id}))
    code, said = command("sample", f"--workdir={moved}/run", "--prompt=ab", state=moved / "a" / "b")
    assert code == 2 and "expected the code of a run that you started" in said, said


def test_a_link_in_place_of_a_copy_is_refused(moved: Path) -> None:
    copy = moved / "run" / "model_family.py"
    copy.unlink()
    copy.symlink_to(moved / "plus.py")
    code, said = command("sample", f"--workdir={moved}/run", "--prompt=ab")
    assert code == 2 and str(copy) in said, said


def test_on_another_machine_the_command_names_the_files_or_consents(
    own: Path, moved: Path, tiny_text: Path, tmp_path: Path
) -> None:
    """Resume as a job of Slurm or Kubernetes does: the run's folder was moved, or comes from a mirror."""
    state = tmp_path / "state"
    code, said = command(f"--workdir={moved}/run", "train.stop_at=3", state=state)
    assert code == 2 and "add --trust-code" in said, said
    elsewhere = tmp_path / "code"  # the folder of these files on the other machine
    elsewhere.mkdir()
    for name in ("plus.py", "mine.py"):
        shutil.copy(own / name, elsewhere / name)
    for folder, stop in ((own, 3), (elsewhere, 4)):
        again = TinyRun(moved / "run", tiny_text, named_files(folder, f"train.stop_at={stop}"))
        again.environment = {"XDG_STATE_HOME": str(tmp_path / f"state-{stop}")}
        assert again.finish() == (75 if stop == 3 else 0), again.tail
    code, said = command("validate", f"--workdir={moved}/run", state=tmp_path / "state-4")
    assert code == 0, said  # this user has resumed the run here


HIDDEN = "\x1b]0;x\x07\x9b31m\u202e\u2066\u200f\x7f"
MARKS = {one for one in HIDDEN if not one.isprintable()}
PLACES = ("data.path", "data.tokenizer", "log.metrics_file", "sample.prompt")


@pytest.mark.parametrize("html", [False, True])
@pytest.mark.parametrize("what", ["report", "compare"])
def test_values_of_a_run_move_no_cursor_and_turn_no_text(
    what: str, html: bool, work: Path, plain: Path, tmp_path: Path
) -> None:
    config = json.loads((work / "config.json").read_text()) | {"name": f"n{HIDDEN}\nerror: fake"}
    (work / "config.json").write_text(json.dumps(config))
    for key in PLACES:
        change(work / "config.json", key, f"v{HIDDEN}")
    plant(work, "model.family", "", f"x{HIDDEN}.py:X")
    sample = {"step": 4, "prompt": f"p{HIDDEN}", "text": "t"}
    (work / "samples.jsonl").write_text(json.dumps(sample) + "\n")
    folders = [str(work), *([str(plain)] if what == "compare" else [])]
    page = tmp_path / "page.html"
    code, said = command(what, *folders, *([f"--html={page}"] if html else []))
    assert code == 0, said
    shown = page.read_text() if html else said
    assert not MARKS.intersection(shown.replace("\n", ""))
    assert "\\x1b" in shown and "\\u202e" in shown
    (work / "model_family.py").unlink()  # then the message contains the name of the file
    code, said = command("sample", f"--workdir={work}")
    assert code == 2 and not MARKS.intersection(said.rstrip()) and "\\u202e" in said


def test_explain_shows_the_typed_word_without_its_control_characters() -> None:
    # The argument may come from an environment variable or a script, not from the reader.
    code, said = command("--config=tiny.py", f"data.path=v{HIDDEN}", "--explain=data.path")
    assert code == 0 and not MARKS.intersection(said.replace("\n", "")), said
    assert "argument     data.path=v\\x1b" in said


def test_consent_runs_the_code_of_a_run_from_elsewhere(moved: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    words = (f"--workdir={moved}/run", "--trust-code")
    code, said = command("sample", *words, "--prompt=ab", "sample.max_tokens=3", state=state)
    assert code == 0, said
    code, said = command("export", *words, f"--to={tmp_path}/out", state=state)
    assert code == 0, said
    code, said = command(*words, "train.stop_at=0", state=state)
    assert code == 0, said


def test_a_folder_for_notes_that_cannot_be_written_ends_no_run(tiny_text: Path, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    run = TinyRun(tmp_path / "run", tiny_text, (f"optim.name={ADAMW}", *SHORT))
    run.environment = {"XDG_STATE_HOME": str(tmp_path / "state")}
    run.finished()
    assert run.output.count("other commands on this run need the option --trust-code") == 1, run.output
