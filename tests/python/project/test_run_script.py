"""`./run`: its help, the errors before it installs anything, and how it shows the progress of long commands."""

from __future__ import annotations

import ast
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from places import ROOT

COMMANDS = ("train", "test", "lint", "stubs", "docs", "site", "fuzz", "sanitize", "soak", "setup")


def call(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "run"), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("script", ["run", ".ci/run"])
def test_scripts_are_executable_posix_shell(script: str) -> None:
    path = ROOT / script
    assert os.access(path, os.X_OK)
    assert path.read_text().startswith("#!/bin/sh\n")
    subprocess.run(["sh", "-n", str(path)], check=True)


@pytest.mark.parametrize("words", [(), ("help",), ("--help",), ("-h",)])
def test_help_names_every_command(words: tuple[str, ...]) -> None:
    done = call(*words)
    assert done.returncode == 0 and done.stderr == ""
    for command in COMMANDS:
        assert f"./run {command}" in done.stdout


@pytest.mark.parametrize("word", ["trian", "--version", "-x"])
def test_an_unknown_command_is_2_and_lists_the_commands(word: str) -> None:
    done = call(word)
    assert done.returncode == 2 and done.stdout == ""
    assert f"unknown command '{word}'" in done.stderr
    for command in COMMANDS:
        assert f"./run {command}" in done.stderr


@pytest.mark.parametrize(
    ("bits", "order", "text"),
    [
        (32, "LITTLE_ENDIAN", "expected a compiler for a 64-bit system, got one for 32 bits"),
        (64, "BIG_ENDIAN", "expected a little-endian system, got a big-endian one"),
        (64, "LITTLE_ENDIAN", ""),
    ],
)
def test_a_machine_that_nothing_is_built_for_is_refused(bits: int, order: str, text: str) -> None:
    defines = [f"-DCMAKE_SIZEOF_VOID_P={bits // 8}", f"-DCMAKE_CXX_BYTE_ORDER={order}"]
    command = ["cmake", *defines, "-P", str(ROOT / "cpp" / "cmake" / "machine.cmake")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert bool(done.returncode) == bool(text) and text in " ".join(done.stderr.split())


def test_an_incomplete_python_is_refused_by_name(tmp_path: Path) -> None:
    old = tmp_path / "python-old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = call("setup", PYTHON=str(old))
    assert done.returncode == 2
    assert str(old) in done.stderr
    assert "installing" not in done.stdout


def shell(script: str, folder: Path, **streams: int) -> subprocess.CompletedProcess[str]:
    """Run a script that has sourced scripts/progress.sh, in its own folder."""
    text = f"set -eu; steps=2; . {ROOT / 'scripts' / 'progress.sh'}\n{script}"
    options = streams or {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(["sh", "-c", text], cwd=folder, text=True, check=False, timeout=60, **options)


@pytest.mark.parametrize(
    "log, text",
    [
        ("[3/10] Building CXX object a.o\nwarning: 7/9\n", "[3/10] 1:00, about 2:20 left"),
        ("  [88/187] Building CXX object a.o\n", "[88/187] 1:00, about 1:07 left"),  # through pip -v
        ("[0/2] Re-checking globbed directories...\n", "[0/2] 1:00"),
        (" 12/81 Test #12: a ....   Passed\n      Start 13: b\n", "[12/81] 1:00, about 5:45 left"),
        (
            "Collecting a\n  Downloading https://host/b/a-1.whl (18 MB)\n\n",
            "1:00 Downloading a-1.whl (18 MB)",
        ),
    ],
)
def test_progress_is_a_count_and_the_time_left_or_the_last_line(tmp_path: Path, log: str, text: str) -> None:
    (tmp_path / "log").write_text(log)
    assert shell("progress log 60", tmp_path).stdout == text + "\n"


def test_a_log_has_a_line_a_minute_and_a_followed_command_its_status(tmp_path: Path) -> None:
    """Check progress with a clock that advances 15 seconds at each call, fifteen times as fast as a real one."""
    script = """
    date() { echo "$(($(cat now) + 15))" >now; cat now; }
    sleep() { command sleep 0.01; }
    echo 0 >now
    step one
    slow='echo "[1/2] a"; until [ "$(cat now)" -gt 200 ]; do sleep 0.01; done; exit 5'
    follow log sh -c "$slow" || echo "rc $?"
    step two
    """
    lines = shell(script, tmp_path).stdout.splitlines()
    assert lines[0] == "run: step 1/2: one" and lines[-2:] == ["rc 5", "run: step 2/2: two"]
    progress = [line for line in lines if line.startswith("run:   [1/2] ")]
    assert [line.split()[2].rstrip(",") for line in progress[:3]] == ["1:00", "2:00", "3:00"]
    assert lines[-3].startswith("run:   took ")


def test_a_terminal_shows_the_progress_in_one_line(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    done = shell("follow log sh -c 'echo \"[1/2] a\"; sleep 2.5'", tmp_path, stdout=theirs)
    os.close(theirs)
    shown = os.read(ours, 10000).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "\r\x1b[Krun:   [1/2] 0:0" in shown and "\n" not in shown and shown.endswith("\r\x1b[K")


def test_setup_knows_its_extras() -> None:
    done = call("setup", "sedes")
    assert done.returncode == 2
    assert "expected extras of seeds, hub, cloud, wandb and eval, got sedes" in done.stderr


def imported(file: Path, seen: set[Path]) -> set[str]:
    """Return the modules that a test file imports at the top level, including the imports of its helpers."""
    seen.add(file)
    found: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    helpers = {ROOT / "tests" / "python" / f"{name}.py" for name in found} - seen
    for helper in sorted(filter(Path.is_file, helpers)):
        found |= imported(helper, seen)
    return found


def quick_folders() -> list[str]:
    """Return the folders of tests/python that `./run test --quick` runs."""
    (folders,) = re.findall(r'^quick_folders="(.*)"$', (ROOT / "run").read_text(), re.MULTILINE)
    return str(folders).split()


def test_the_quick_tests_import_no_large_package() -> None:
    folders = quick_folders()
    files = [
        file for folder in folders for file in sorted((ROOT / "tests" / "python" / folder).glob("test_*.py"))
    ]
    assert len(files) > 20
    seen: set[Path] = set()
    names = set().union(*(imported(file, seen) for file in files))
    assert "hypothesis" in names and not names & {"torch", "transformers", "datasets", "pyarrow", "nbclient"}


def test_a_quick_test_names_the_folders_that_it_leaves_out() -> None:
    script = (ROOT / "run").read_text()
    lines = re.findall(r"^quick_folders=.*?$|^left_out\(\) \{.*?^\}$", script, re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        ["sh", "-c", "\n".join([*lines, "left_out"])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    left_out = done.stdout.split(", ")
    assert "engine" in left_out and "base" not in left_out
    folders = {path.name for path in (ROOT / "tests" / "python").iterdir() if path.is_dir()}
    assert {*left_out, *quick_folders()} == folders - {"__pycache__"}


def test_the_clone_line_of_the_readme_leads_to_its_first_command(tmp_path: Path) -> None:
    """Type the line with a path in place of the address; then `./run help`, which installs nothing."""
    if not (ROOT / ".git").exists():
        pytest.skip("this checkout is no repository")
    (line,) = re.findall(r"^git clone .*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert line.count("ADDRESS_OF_THIS_REPOSITORY") == 1
    typed = (
        line.replace("ADDRESS_OF_THIS_REPOSITORY", str(ROOT)) + " && test -f configs/tiny.py && ./run help"
    )
    done = subprocess.run(["sh", "-c", typed], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "./run train" in done.stdout
