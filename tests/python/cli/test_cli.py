"""The command line: arguments, help, and the effects of a mistake."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mudd_core
from mudd_core import cli
from mudd_core.base.errors import UserError
from mudd_core.cli import argv, names
from mudd_core.cli.requested import request_of
from mudd_core.config import FAMILIES, Config
from mudd_core.config.fields import walk
from places import ROOT

PACKAGES = str(Path(mudd_core.__file__).resolve().parents[1])


def launch(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "launch.py"), *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": PACKAGES},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "variable", "told"),
    [
        (("--plan", "--config=tiny.py"), "MUDD_MAX_ISA", "MUDD_MAX_ISA: expected one of portable"),
        (("--config=tiny.py", "--workdir=w", "data.path=~nobodyhere/text"), "", "data.path"),
        (
            ("--config=tiny.py", f"--workdir={'x' * 250}/{'/'.join(['y' * 250] * 20)}"),
            "",
            "cannot be written",
        ),
    ],
)
def test_surroundings_that_do_not_fit_are_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], variable: str, told: str
) -> None:
    if variable:
        monkeypatch.setenv(variable, "foo")
    done = launch(*words, cwd=tmp_path)
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr


def test_help_shows_every_field_with_default_unit_and_meaning(tmp_path: Path) -> None:
    done = launch("--help=all", cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    assert max(map(len, done.stdout.splitlines())) <= 100
    for model in (family.config() for family in FAMILIES.values()):
        for info in walk(Config(model=model)):
            assert f"  {info.path} = " in done.stdout
            assert not info.unit or f"in {info.unit}" in done.stdout
            assert info.text.split()[0] in done.stdout
    shown = launch("--help=all", "--config=gpt2/gpt2.py", cwd=tmp_path).stdout
    assert "model.d_model = 768  (int, in channels)" in shown
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train"], "--config=FILE is missing"),
        (["--config=tiny.py", "sample"], "'sample' is a command and must be the first argument"),
        (["sample", "--config=tiny.py", "--plan"], "--plan: expected the command train, got sample"),
        (
            ["--config=tiny.py", "--step=3"],
            "--step: expected the command validate or sample or chat, got train; --steps sets the number of steps",
        ),
        (["--help=gpt2"], "expected nothing or all after it"),
        (["profile", "--config=tiny.py", "--setps=3"], "[profile] unknown option '--setps'; did you mean"),
        (["export", "--workdir=w", "--too=x"], "[export] --to is missing; type: "),
        (["weights", "--workdri=w"], "[weights] unknown option '--workdri'; did you mean '--workdir'"),
        (["mup", "chek"], "[mup] expected check or transfer, got 'chek'; did you mean 'check'?"),
        (["--config=smal.py"], "did you mean 'small.py'"),
        (["--config=tiny.py", "train.stepz=1"], "did you mean 'train.steps'"),
        (["--config=tiny.py", "--workdri=x"], "did you mean '--workdir'"),
        (["--config=tiny.py", "--mode=trian"], "unknown command 'trian'; did you mean 'train'"),
        (["trian", "--config=tiny.py"], "did you mean 'train'"),
        (["--config"], "expected FILE after it"),
        (["--config=tiny.py", "--explain"], "expected FIELD after it, such as --explain=optim.lr"),
        (["export", "w", "out", "--force"], "export w --force --to=out"),
        (["sample", "--config=tiny.py"], "holds no run"),
        (["validate", "--config=tiny.py"], "holds no run"),
        (["report", "--workdir=nowhere"], "holds no run"),
        (["sample"], "sample reads a run, and none is named; type: "),
        (["--config=tiny.py", "data.path=nowhere.txt"], "nowhere.txt"),
        (["--config=tiny.py", "--workdir=foreign"], "thesis.tex"),
        (["--config=tiny.py", "--workdir=" + 300 * "x"], "at most 255 bytes"),
    ],
)
def test_mistakes_exit_2_and_write_nothing(tmp_path: Path, words: list[str], says: str) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").touch()
    done = launch(*words, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr and "Traceback" not in done.stderr
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert left <= {"foreign/thesis.tex", "runs/tiny/.lock"}


ALL = ["", *names.COMMANDS, *names.TOOLS, "mup check", "mup transfer", "help data", "sample --config=tiny.py"]


@pytest.mark.parametrize("words", ALL)
def test_every_help_is_one_screen(words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*words.split(), "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert 10 <= len(lines) <= 40 and max(map(len, lines)) <= 100, words
    assert lines[0].startswith("usage: ")


@pytest.mark.parametrize("tool", names.TOOLS)
def test_help_may_come_first(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["help", *tool.split()], [*tool.split(), "--help"]):
        assert cli.main(words) == 0
    shown = capsys.readouterr().out
    assert shown == shown[: len(shown) // 2] * 2
    assert f" {tool} " in shown.splitlines()[0]


def test_the_help_of_the_program_names_commands_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    printed = capsys.readouterr().out
    for word in (*names.COMMANDS, *names.TOOLS, *names.OPTIONS, "--help=all", "MUDD_MAX_ISA"):
        assert word in printed


def test_no_arguments_print_a_short_usage(tmp_path: Path) -> None:
    done = launch(cwd=tmp_path)
    assert done.returncode == 0 and len(done.stdout.splitlines()) < 12
    assert f"{ROOT / 'launch.py'} sample --config=tiny.py" in done.stdout


def test_options_of_sample_may_have_underscores() -> None:
    options = request_of(
        argv.parse(["sample", "--config=tiny.py", "--num_samples", "2", "--prompt_file=x"])
    ).options
    assert (options["--num-samples"], options["--prompt-file"]) == ("2", "x")


def test_the_version_is_an_option() -> None:
    with pytest.raises(UserError, match=r"'version' is no command; type: .* --version$"):
        request_of(argv.parse(["version"]))


def test_words_become_a_request() -> None:
    request = request_of(argv.parse(["sample", "--config", "tiny.py", "--prompt", "--x=1", "--max-tokens=5"]))
    assert request.command == "sample" and request.options["--prompt"] == "--x=1"
    assert request.config is None and request.words == ["--max-tokens=5"]
    request = request_of(argv.parse(["--config", "tiny.py", "--max-tokens=5", "sample.seed=3"]))
    assert request.required_config().sample.max_tokens == 5 and request.required_config().sample.seed == 3
    assert request.folder.path == Path("runs/tiny")
    assert request_of(argv.parse(["--config=tiny.py", "--mode=validation"])).command == "validate"
    assert request_of(argv.parse(["--mode", "sample", "--config=tiny.py"])).command == "sample"
    assert request_of(argv.parse(["--config=tiny.py", "--workdir=w"])).folder.path == Path("w")
    assert request_of(argv.parse(["--config=tiny.py", "--steps", "9"])).required_config().train.steps == 9
