"""The command line: words, help, exit codes, what a run ends with."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import mudd_core
from fake_engine import FakeEngine
from fake_runs import make
from mudd_core import cli
from mudd_core.base.errors import DivergedError, FormatError, SaveError, UserError
from mudd_core.base.surroundings import environment_text
from mudd_core.cli import argv, commands, ending, names
from mudd_core.config import FAMILIES, Config, SampleConfig
from mudd_core.config.fields import walk
from mudd_core.run.records.events import Summary
from mudd_core.run.report.sample import write_text
from mudd_core.run.store.run_folder import RunFolder
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
        (["--config=tiny.py", "sample"], "'sample' is a command: it is the first argument"),
        (["sample", "--config=tiny.py", "--plan"], "--plan: expected the command train, got sample"),
        (["--config=tiny.py", "--step=3"], "--step: expected the command validate or sample, got train"),
        (["--help=gpt2"], "expected nothing or all behind it"),
        (["profile", "--config=tiny.py", "--setps=3"], "[profile] unknown option '--setps'; did you mean"),
        (["export", "--workdir=w", "--too=x"], "[export] --to is missing; type: "),
        (["weights", "--workdri=w"], "[weights] unknown option '--workdri'; did you mean '--workdir'"),
        (["mup", "chek"], "[mup] expected check or transfer, got 'chek'; did you mean 'check'?"),
        (["--config=smal.py"], "did you mean 'small.py'"),
        (["--config=tiny.py", "train.stepz=1"], "did you mean 'train.steps'"),
        (["--config=tiny.py", "--workdri=x"], "did you mean '--workdir'"),
        (["--config=tiny.py", "--mode=trian"], "unknown command 'trian'; did you mean 'train'"),
        (["trian", "--config=tiny.py"], "did you mean 'train'"),
        (["--config"], "expected FILE behind it"),
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
    assert "python3 launch.py sample --config=tiny.py" in done.stdout


def test_options_of_sample_may_have_underscores() -> None:
    options = argv.parse(["sample", "--config=tiny.py", "--num_samples", "2", "--prompt_file=x"]).options
    assert (options["--num-samples"], options["--prompt-file"]) == ("2", "x")


def test_the_version_is_an_option() -> None:
    with pytest.raises(UserError, match=r"'version' is no command; type: .* --version$"):
        argv.parse(["version"])


def test_words_become_a_request() -> None:
    request = argv.parse(["sample", "--config", "tiny.py", "--prompt", "--x=1", "--max-tokens=5"])
    assert request.command == "sample" and request.options["--prompt"] == "--x=1"
    assert request.config is None and request.words == ["--max-tokens=5"]
    request = argv.parse(["--config", "tiny.py", "--max-tokens=5", "sample.seed=3"])
    assert request.required_config().sample.max_tokens == 5 and request.required_config().sample.seed == 3
    assert request.folder.path == Path("runs/tiny")
    assert argv.parse(["--config=tiny.py", "--mode=validation"]).command == "validate"
    assert argv.parse(["--mode", "sample", "--config=tiny.py"]).command == "sample"
    assert argv.tool_in(["--mode=grow", "runs/a", "--preserve"]) == ("grow", ["runs/a", "--preserve"])
    assert argv.tool_in(["--workdir=w", "--mode", "import", "folder"]) == (
        "import",
        ["--workdir=w", "folder"],
    )
    assert argv.tool_in(["--mode=train", "--config=tiny.py"])[0] is None
    assert argv.parse(["--config=tiny.py", "--workdir=w"]).folder.path == Path("w")
    assert argv.parse(["--config=tiny.py", "--steps", "9"]).required_config().train.steps == 9


def test_the_ending_names_paths_commands_and_the_hash(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "step-300").mkdir(parents=True)
    request = argv.parse(["--config=tiny.py"])
    summary = Summary("tiny", 300, 300, 307200, 2.5, 2.4, 1.61, 0, 92.0, "ab12")
    text = ending.ending(summary, RunFolder(tmp_path), request, "The end")
    for part in (
        "300 steps",
        "307,200 tokens",
        "1m32s",
        "2.4000",
        "1.6100 bits per byte",
        "step-300",
        "metrics.jsonl",
    ):
        assert part in text
    for command in (
        "sample --config=tiny.py --prompt 'The end'",
        "view     ",
    ):
        assert command in text
    assert "resume" not in text  # nothing is left to do
    assert text.splitlines()[-1] == "final hash ab12"


def test_a_sample_that_fails_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = SimpleNamespace(
        engine=SimpleNamespace(executor=SimpleNamespace(release=lambda: None)),
        model=SimpleNamespace(config=SimpleNamespace(max_seq_len=1)),
        tokenizer=SimpleNamespace(eos_id=0),
    )
    ending.show_sample(trainer, Config())
    assert "warning: no sample: [sample] prompt: expected at most 0 tokens" in capsys.readouterr().out


def test_a_prompt_that_is_no_text_is_refused() -> None:
    with pytest.raises(UserError, match="UTF-8"):
        write_text(None, None, "\udcff", SampleConfig(), print)


def test_the_start_line_tells_the_precision() -> None:
    assert ", bf16" in environment_text("bf16")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("x"), 2),
        (FormatError("f", 3, "r"), 65),
        (SaveError("x"), 74),
        (DivergedError("x"), 76),
        (MemoryError("x"), 2),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 0),
        (OSError(errno.ENOSPC, "No space left on device"), 74),
        (ZeroDivisionError("x"), 70),
        (ValueError("x"), 70),
    ],
)
def test_every_error_has_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], error: BaseException, code: int
) -> None:
    def fail(_: object) -> int:
        raise error

    monkeypatch.setattr(commands, "run", fail)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    assert cli.main(["--config=tiny.py"]) == code
    assert ("Traceback" in capfd.readouterr().err) == (code == 70)


def test_report_tells_of_numbers_that_are_not_finite_and_of_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = FakeEngine(w=np.full(5, np.nan, np.float32))
    with make(tmp_path, engine, "train.save=false") as trainer:  # such weights are never saved
        trainer.fit()

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    summary = json.loads((tmp_path / "summary.json").read_text(), parse_constant=refuse)
    assert summary["loss"] is None and summary["val_loss"] is None
    assert cli.main(["report", f"--workdir={tmp_path}"]) == 0
    # Loss and bits of three validations, loss and gradient norm of the five last rows, the last row.
    assert capsys.readouterr().out.count("not finite") == 2 * 3 + 2 * 5 + 1
    log = tmp_path / "metrics.jsonl"
    log.write_text(log.read_text().replace("{", "", 1))
    assert cli.main(["report", f"--workdir={tmp_path}"]) == 65
    told = capsys.readouterr().err
    assert "line 1 is damaged" in told and "Traceback" not in told
