"""Commands that read a run use its saved config: overrides of the training need not be repeated."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from launched import called, launched
from mudd_core import cli
from mudd_core.base.errors import UserError
from mudd_core.checkpoint.steps import step_name
from mudd_core.tools import mix_weights
from mudd_core.tools.export_weights import command as export_command
from tiny_run import CONFIG, TinyRun

NAME = "tiny_run"  # the name of the config; its default folder is runs/tiny_run
OWN = ("train.steps=3", "train.batch_size=4", "train.seed=7", "optim.lr=0.002")


@pytest.fixture(scope="module")
def trained(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with runs/<name of the config>, trained with overrides."""
    folder = tmp_path_factory.mktemp("overridden")
    run = TinyRun(folder / "run", tiny_text, OWN).trained()
    (folder / "runs").mkdir()
    run.workdir.rename(folder / "runs" / NAME)
    return folder


@pytest.mark.parametrize("which", [f"--config={CONFIG}", f"--workdir=runs/{NAME}"])
def test_reading_commands_need_no_override_again(
    trained: Path, which: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(trained)
    assert cli.main(["sample", which, "--prompt", "tree ", "--max-tokens=3"]) == 0
    assert cli.main(["validate", which]) == 0
    assert cli.main(["report", which]) == 0
    printed = capsys.readouterr().out
    assert (
        "tree " in printed
        and "step 3: validation loss" in printed
        and re.search(r"train.batch_size +4 ", printed)
    )
    with pytest.raises(Exception, match="expected a MUDDFormer"):  # the command has loaded the model by then
        mix_weights.main([which])
    out = trained / "exported"
    assert export_command.main([which, f"--to={out}", "train.threads=1"]) == 0
    shutil.rmtree(out)


@pytest.mark.parametrize(
    "words", [("report",), ("sample", "--max-tokens=3"), ("validate", "train.threads=1")]
)
def test_a_bare_folder_is_the_run(trained: Path, words: tuple[str, ...]) -> None:
    run = f"runs/{NAME}"
    named = launched(trained, *words, f"--workdir={run}")
    assert named.returncode == 0, named.stderr
    (step,) = (trained / run / "checkpoints").iterdir()
    of_step = str(step.relative_to(trained))
    for typed in ((words[0], run, *words[1:]), (*words, of_step), (*words, f"--workdir={of_step}")):
        done = called(trained, *typed)
        assert (done.returncode, done.stderr) == (0, named.stderr), typed
        assert untimed(done.stdout) == untimed(named.stdout), typed


@pytest.mark.parametrize(
    "words",
    [
        ("data", "show"),
        ("scale", "--nodes=2"),
        ("export", "--to=out"),
        ("weights",),
        ("grow", "--workdir=grown"),
    ],
    ids=" ".join,
)
def test_a_tool_takes_a_bare_folder_of_a_run_or_checkpoint(
    trained: Path,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(trained)
    run = f"runs/{NAME}"
    (step,) = (trained / run / "checkpoints").iterdir()
    named = f"--from={run}" if words[0] == "grow" else f"--workdir={run}"
    outcome([*words, named], capsys)  # from now on the token cache exists
    first = outcome([*words, named], capsys)
    for typed in (run, f"{run}/checkpoints", str(step.relative_to(trained)), f"{named}/checkpoints"):
        assert outcome([*words, typed], capsys) == first, typed
    wanted = {"weights": "expected a MUDDFormer", "grow": "expected a TokenFormer, got transformer_pp"}
    assert wanted.get(words[0], "") in first[1] and (words[0] in wanted) == (first[0] == 2)


def outcome(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Return the exit code, errors and output of a command, without the parts that change with time."""
    code = cli.main(words)
    shutil.rmtree("out", ignore_errors=True)
    out, err = capsys.readouterr()
    return code, err, untimed(out)


def test_a_folder_of_a_run_is_no_config_and_a_config_is_no_run(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(trained)
    run = f"runs/{NAME}"
    assert cli.main(["report", f"--config={run}"]) == 0
    assert "checkpoints: 3" in capsys.readouterr().out
    for words, line in (
        ([f"--config={run}", "--plan"], f"--plan --workdir={run}"),
        (["profile", "tiny.py"], "profile --config=tiny.py"),
        (["profile"], "profile --config=small.py"),
        (["export", run], f"export {run} --to=exported"),
        (["export", "--step=3"], "export --step=3 runs/small --to=exported"),
        (["sample", "--temperature=0"], f"sample {run} --temperature=0"),
    ):
        assert cli.main(words) == 2
        told = capsys.readouterr().err
        assert told.endswith(f" {line}\n") and told.count("\n") == 1, told


def untimed(text: str) -> str:
    """Return the output of a command without its seconds."""
    return re.sub(r"[\d.]+ s\b", "", text)


def test_the_step_of_a_checkpoint_folder_counts(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(trained)
    of_step = f"runs/{NAME}/checkpoints/{step_name(2)}"  # the run has a checkpoint of step 3 only
    for words in (["sample"], ["validate"]):
        assert cli.main([*words, of_step]) == 2
        assert "checkpoint of step 2" in capsys.readouterr().err
    for main, more in ((mix_weights.main, []), (export_command.main, ["--to=exported"])):
        with pytest.raises(UserError, match="checkpoint of step 2"):
            main([f"--workdir={of_step}", *more])
    assert cli.main([f"--workdir={of_step}"]) == 2
    assert capsys.readouterr().err.endswith(f" --workdir=runs/{NAME}\n")


def test_data_takes_a_bare_folder_of_a_run_and_its_step_is_no_option_of_it(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(trained)
    run = f"runs/{NAME}"
    (step,) = (trained / run / "checkpoints").iterdir()
    outcome(["data", f"--workdir={run}"], capsys)  # from now on the listing of the text exists
    named = outcome(["data", f"--workdir={run}"], capsys)
    assert named[0] == 0, named
    for typed in (run, f"--config={run}", f"--workdir={run}/checkpoints", str(step.relative_to(trained))):
        assert outcome(["data", typed], capsys) == named, typed
    assert outcome(["data", "runs/none"], capsys)[0] == 2


def test_a_prompt_comes_from_an_input_and_each_text_has_the_next_seed(trained: Path) -> None:
    words = ("sample", f"runs/{NAME}", "--max-tokens=6")
    texts = [called(trained, *words, "--prompt", "a\ntree", f"sample.seed={seed}").stdout for seed in (5, 6)]
    assert texts[0].startswith("a\ntree") and texts[0] != texts[1]
    both = "---\n".join(texts)
    many = (*words, "--num-samples=2", "sample.seed=5")
    assert launched(trained, *many, "--prompt", "-", typed="a\ntree\n").stdout == both
    (trained / "prompt.txt").write_text("a\ntree\n")
    assert called(trained, *many, "--prompt-file=prompt.txt").stdout == both


def test_a_prompt_that_cannot_be_read_is_told_before_the_run_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "latin1.txt").write_bytes(b"caf\xe9")
    (tmp_path / "lines.txt").write_bytes(b"the\nna\xc3\xafve caf\xe9\nend\n")
    for words, says in (
        (["--prompt-file=none.txt"], "the prompt in none.txt cannot be read"),
        (
            ["--prompt-file=latin1.txt"],
            "the prompt in latin1.txt: expected UTF-8 text, got the byte 0xe9 at byte 3; if",
        ),
        (
            ["--prompt-lines=lines.txt"],
            "lines.txt: expected UTF-8 text, got the byte 0xe9 at byte 14, in line 2; if",
        ),
        (["--prompt-file=latin1.txt", "--prompt=x"], "--prompt-file: expected it without --prompt"),
        (["--num-samples=0"], "--num-samples: expected a whole number of at least 1"),
    ):
        done = called(tmp_path, "sample", "runs/none", *words)
        assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_run_without_its_command_is_told(trained: Path) -> None:
    for typed in (f"runs/{NAME}", f"runs/{NAME}/checkpoints"):
        told = called(trained, typed)
        assert told.returncode == 2 and told.stderr.endswith(f"--workdir=runs/{NAME}\n"), told.stderr


def test_of_a_saved_run_only_what_may_change_on_resume_changes(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(trained)
    assert cli.main(["report", f"--config={CONFIG}", "eval.batch_size=5", "train.seed=7"]) == 0
    assert "  eval.batch_size " in (told := capsys.readouterr().out) and "  5 " in told
    assert cli.main(["sample", f"--config={CONFIG}", "train.seed=1"]) == 2
    told = capsys.readouterr().err
    assert "train.seed: saved 7, asked 1" in told and "leave these arguments out" in told
    assert cli.main(["sample", f"--config={CONFIG}", "name=other"]) == 2
    assert "runs/other holds no run" in capsys.readouterr().err
    assert cli.main(["sample", f"--workdir=runs/{NAME}", "--config=smal.py"]) == 2
    assert "did you mean 'small.py'" in capsys.readouterr().err
    assert cli.main(["sample", f"--config={CONFIG}", f"--workdri=runs/{NAME}"]) == 2
    assert "did you mean '--workdir'" in capsys.readouterr().err
