"""Stop signals before the first step, and launchers that start several processes: nothing is written."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mudd_core import _core, cli
from mudd_core.cli.argv import parse
from mudd_core.run.loop import signals
from tiny_run import ROOT

pytestmark = pytest.mark.usefixtures("hangs_up")

CONFIG = """
import os, signal
from mudd_core.config import Config
def get_config():
    os.kill(os.getpid(), signal.{name})
    return Config(name="early")
"""
# Sends itself the signal at the first import of a module of mudd_core, then continues as launch.py.
AT_IMPORT = """
import os, runpy, signal, sys
class Sender:
    def find_spec(self, name, path=None, target=None):
        if name == "mudd_core":
            {sent}
sys.meta_path.insert(0, Sender())
sys.argv = {argv!r}
runpy.run_path({launch!r}, run_name="__main__")
"""
KILLED = "os.kill(os.getpid(), signal.{name})"
MASK = "print(sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ())))); os._exit(0)"


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), **environment}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("name", [signal.Signals(number).name for number in _core.stop_signals()])
def test_a_signal_while_the_program_is_imported_ends_with_75(tmp_path: Path, name: str) -> None:
    launch = str(ROOT / "launch.py")
    code = AT_IMPORT.format(sent=KILLED.format(name=name), argv=[launch, "--config=tiny.py"], launch=launch)
    done = run(tmp_path, "-c", code)
    assert done.returncode == 75, done.stderr
    assert f"stopped by {name} before anything was written" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
@pytest.mark.parametrize("start", [[str(ROOT / "launch.py")], ["-m", "mudd_core"]])
def test_a_signal_while_the_config_file_runs_ends_with_75(
    tmp_path: Path, name: str, start: list[str]
) -> None:
    (tmp_path / "early.py").write_text(CONFIG.format(name=name))
    done = run(tmp_path, *start, "--config=early.py")
    assert done.returncode == 75, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["early.py"]


def test_launch_py_blocks_every_signal_that_ends_a_process_before_it_imports_the_package(
    tmp_path: Path,
) -> None:
    launch = str(ROOT / "launch.py")
    done = run(tmp_path, "-c", AT_IMPORT.format(sent=MASK, argv=[launch], launch=launch))
    blocked = set(json.loads(done.stdout))
    assert blocked == {int(one) for one in signal.valid_signals() - cli.NOT_HELD}
    assert {signal.SIGALRM, signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU, signal.SIGRTMAX} <= blocked
    assert not {signal.SIGSEGV, signal.SIGABRT} & blocked


def test_launch_py_imports_nothing_slow_before_it_blocks_signals() -> None:
    tree = ast.parse((ROOT / "launch.py").read_text(encoding="utf-8"))
    found = {name.name for node in tree.body if isinstance(node, ast.Import) for name in node.names}
    found |= {str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert found == {"__future__", "os", "signal", "sys"}


def test_every_signal_is_let_through_to_the_command(tmp_path: Path) -> None:
    (tmp_path / "mask.py").write_text(f"import os, signal\n{MASK}\n")
    done = run(tmp_path, str(ROOT / "launch.py"), "--config=mask.py", "--plan")
    assert done.stdout == "[]\n"


def test_other_commands_end_by_the_signal_as_any_program(tmp_path: Path) -> None:
    launch = str(ROOT / "launch.py")
    code = AT_IMPORT.format(sent=KILLED.format(name="SIGTERM"), argv=[launch, "--help"], launch=launch)
    assert run(tmp_path, "-c", code).returncode == -15


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ("--config=tiny.py", True),
        ("train --config tiny.py", True),
        ("bakeoff --config tiny.py", True),
        ("--config tiny.py --mode bakeoff", True),
        ("--mode=sample --config tiny.py", False),
        ("sample --config tiny.py", False),
        ("eval --config tiny.py", False),
        ("mup check", False),
        ("--config=tiny.py --plan", False),
        ("-h", False),
        ("-V", False),
        ("help train", False),
        ("", False),
    ],
)
def test_which_arguments_train(arguments: str, wanted: bool) -> None:
    assert parse(arguments.split()).trains == wanted


@pytest.mark.parametrize(
    "name", ["SLURM_NTASKS", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE"]
)  # without a variable for the rank
def test_several_processes_of_a_launcher_are_refused_before_anything_is_written(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "early.py").write_text("raise SystemExit(99)  # never run")
    monkeypatch.setenv(name, "2")
    assert cli.main(["--config=early.py"]) == 2
    assert f"[launch] {name}: expected 1 process, got 2" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["early.py"]
    for value in ("1", "01", "", "2(x3)"):
        monkeypatch.setenv(name, value)
        assert cli.main(["--config=early.py"]) == 2
        # mpirun sets integers only; other launchers' variables may contain lists.
        refused = name == "OMPI_COMM_WORLD_SIZE" and not value.isdecimal()
        wanted = (
            f"[launch] {name}: expected a whole number" if refused else "SystemExit: 99"
        )  # now early.py was run
        assert wanted in capsys.readouterr().err


def test_a_program_that_calls_main_has_its_own_handlers_afterwards(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert cli.main(["--config=tiny.py", f"--workdir={tmp_path / 'file'}"]) == 2
    with signals.handlers():  # raises an error if the command's handlers are still installed
        assert signals.taken()
    assert not signals.taken()
