"""The completion scripts, as bash and zsh read them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from launched import called, launched
from mudd_core import __version__
from mudd_core.cli.completion.script import SHELLS, script
from mudd_core.cli.completion.tables import known_names
from mudd_core.cli.names import COMMANDS, TOOLS
from mudd_core.config import FAMILIES
from mudd_core.config.config_files import config_files
from mudd_core.config.schema import fields_of_all

# As bash calls the function of `complete -F`: the line up to the cursor, and COMP_WORDS.
CALL = """
COMP_LINE=$1; COMP_POINT=${#1}; read -ra COMP_WORDS <<< "$1"
"$(complete -p "$2" | sed 's/.*-F \\([^ ]*\\) .*/\\1/')"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the script for bash, printed by a fresh process."""
    folder = tmp_path_factory.mktemp("completion")
    done = launched(folder, "completion", "bash")
    assert (done.returncode, done.stderr) == (0, "")
    (folder / "completion.sh").write_text(done.stdout)
    return folder / "completion.sh"


def completed(script: Path, line: str, folder: Path) -> list[str]:
    """Return the completions of the last argument of a line in bash."""
    program = line.partition(" ")[0].rpartition("/")[2]
    command = ["bash", "-uc", f"source {script}; {CALL}", "bash", line, program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stderr == "", line
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("./launch.py ", [*COMMANDS, "tune", "configs"]),
        ("./launch.py val", ["validate", "validation", "valid"]),
        ("mudd data ", ["show", "convert", "inspect"]),
        ("mudd completion ", [*SHELLS]),
        ("mudd help sa", ["sample"]),
        ("python3 launch.py --config=tiny.py train.", ["train.steps=", "train.precision="]),
        ("./launch.py tr", ["train", "train."]),
        ("./launch.py --config=tiny.py optim.name=", ["adamw", "muon"]),
        ("./launch.py train.precision=b", ["bf16"]),
        ("./launch.py train.recompute=", ["true", "false"]),
        ("./launch.py model.family=", [*FAMILIES]),
        ("./launch.py --config=ti", ["tiny.py"]),
        ("./launch.py --config=muddformer/4", ["muddformer/405m.py", "muddformer/405m_moe.py"]),
        ("./launch.py --config=tiny.py --pl", ["--plan"]),
        ("./launch.py sample --num", ["--num-samples="]),
        ("./launch.py bakeoff --preset=", ["families", "moe"]),
        ("./launch.py tune --ba", ["--base="]),
        ("./launch.py --explain=optim.lr", ["optim.lr"]),
        ("./launch.py sample runs/", ["runs/mine"]),
        ("./launch.py compare runs/mine r", ["runs/mine"]),
        ("./launch.py report --workdir=", ["runs/mine"]),
    ],
)
def test_bash_completes(line: str, some: list[str], bash_script: Path, tmp_path: Path) -> None:
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "config.json").touch()
    (tmp_path / "runs" / "cache").mkdir()
    found = completed(bash_script, line, tmp_path)
    assert set(some) <= set(found), found
    assert not any("cache" in name for name in found)
    start = line.split(" ")[-1].rpartition("=")[2]
    assert all(name.startswith(start) for name in found)


@pytest.mark.parametrize(
    "line",
    ["./launch.py nothing", "./launch.py doctor train.", "python other.py tr", "./launch.py data.path=x"],
)
def test_bash_completes_file_names_where_no_name_fits(line: str, bash_script: Path, tmp_path: Path) -> None:
    assert completed(bash_script, line, tmp_path) == []
    assert "complete -o default" in bash_script.read_text()


def test_the_script_has_every_name_of_this_version() -> None:
    names = known_names()
    assert set(names.options) >= {*COMMANDS, *TOOLS}
    assert all(any(option.startswith("--help") for option in options) for options in names.options.values())
    assert set(names.fields) == {info.path for info in fields_of_all()}
    assert set(names.configs) == set(config_files())
    for shell in SHELLS:
        assert "@" not in script(shell, names, __version__).replace("[@]", "").replace("(@", "").replace(
            '"$@"', ""
        )


def test_zsh_reads_its_script(tmp_path: Path) -> None:
    done = called(tmp_path, "completion", "zsh")
    assert done.stdout.startswith("#compdef launch.py mudd\n")
    if (zsh := shutil.which("zsh")) is None:
        pytest.skip("zsh is not installed")
    (tmp_path / "_mudd").write_text(done.stdout)
    # compadd works in the line editor alone: a function records its arguments.
    code = (
        "autoload -Uz compinit; compinit -u -D; source ./_mudd; compadd() { print -l -- ${@:#-*} }; "
        "PREFIX=tr; CURRENT=2; words=(./launch.py tr); _mudd"
    )
    told = subprocess.run([zsh, "-fc", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert {"train", "train."} <= set(told.stdout.split()), told.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("fish",), "[completion] expected bash or zsh, got 'fish'"),
        (("bsh",), "got 'bsh'; did you mean 'bash'?"),
        ((), "[completion] bash|zsh is missing; type: "),
        (("bash", "zsh"), "[completion] unexpected argument 'zsh'"),
    ],
)
def test_another_shell_is_refused(words: tuple[str, ...], told: str, tmp_path: Path) -> None:
    done = launched(tmp_path, "completion", *words)
    assert (done.returncode, done.stdout) == (2, "") and told in done.stderr
