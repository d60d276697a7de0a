"""Commands and scripts that do not exist here: what takes their place, and the groups of commands."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from launched import called, launched
from mudd_core.cli.main_help import group_lines
from mudd_core.cli.names import ALIASES, COMMANDS, GROUPS, OPTIONS, TOOLS
from mudd_core.config.config_files import family_configs
from mudd_core.config.foreign import COMMANDS as FOREIGN
from mudd_core.config.foreign import KINDS, SCRIPTS, SETTINGS
from mudd_core.config.schema import fields_of_all
from mudd_core.programs.program import programs
from tiny_run import TinyRun

KNOWN = [*COMMANDS, *TOOLS]


def test_every_command_is_in_one_group() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(KNOWN)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("trian --config=tiny.py", "unknown command 'trian'; did you mean 'train'?"),
        ("finetune", "'finetune' is no command; type: python3 launch.py tune"),
        ("--config=tiny.py bench", "'bench' is no command; type: python3 launch.py profile --config=tiny.py"),
        ("frobnicate", "unknown command 'frobnicate'; the commands are:"),
        ("frobnicate --help", "unknown command 'frobnicate'; the commands are:"),
    ],
)
def test_an_unknown_command_has_the_nearest_and_all_in_groups(line: str, told: str, tmp_path: Path) -> None:
    done = launched(tmp_path, *shlex.split(line))
    program = shlex.join([done.args[1]])
    head, *groups = done.stderr.replace(program, "python3 launch.py").splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert head == f"error: [arguments] {told}"
    assert groups == group_lines() and not list(tmp_path.iterdir())


def test_the_main_help_has_a_line_for_each_group(tmp_path: Path) -> None:
    lines = launched(tmp_path, "--help").stdout.splitlines()
    start = lines.index("commands:")
    for group, names in GROUPS.items():
        assert any(line.startswith(f"  {group:<11}  {names[0]} ") for line in lines[start:]), group


def test_every_replacement_exists() -> None:
    for replaced in (*FOREIGN.values(), *SCRIPTS.values()):
        assert replaced.split()[0] in (*KNOWN, *OPTIONS, "clm"), replaced
    leaves = {info.path.rpartition(".")[2] for info in fields_of_all()}
    assert FOREIGN.keys().isdisjoint({*KNOWN, *ALIASES, *leaves, *SETTINGS} - {"tensorboard"})


SCRIPTS_TYPED = [
    *SCRIPTS,
    *(f"{one.folder}/train.py" for one in programs() if one.folder),
    *(file for one in programs() for file in one.files),
    "src/train.py",
    "mu_transformer/jax_impl/launch.py",
    "base_v2.yml",
    "tiny.py",
]


@pytest.mark.parametrize("script", dict.fromkeys(SCRIPTS_TYPED))
def test_help_of_a_script_is_of_the_command_that_replaces_it(script: str, tmp_path: Path) -> None:
    for words in ((script, "--help"), ("help", script)):
        done = called(tmp_path, *words)
        assert (done.returncode, done.stderr) == (0, ""), words
        assert done.stdout.startswith("usage: ")
    file = script.rpartition("/")[2]
    command = {"base_v2.yml": "FILE.yml", "launch.py": "--config=mu_transformer/"}.get(
        file, SCRIPTS.get(file, "train")
    )
    if "/" not in script or script.startswith("src/"):
        assert f"launch.py {command}" in done.stdout.splitlines()[0]


def test_help_of_a_script_in_a_fresh_process(tmp_path: Path) -> None:
    done = launched(tmp_path, "MaxText/train.py", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "launch.py FILE.yml key=value" in done.stdout and "  base_emb_dim=" in done.stdout
    assert "unknown command 'nothing.py'" in launched(tmp_path, "nothing.py", "--help").stderr


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_configs(kind: str) -> None:
    found = family_configs(kind)
    assert any(name.startswith(f"{KINDS[kind]}/") for name in found) and len(set(found)) == len(found)


def test_text_after_a_run_becomes_its_prompt(tiny_text: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    run = TinyRun(tmp_path / "runs" / "mine", tiny_text, ("train.steps=2", "train.eval_every=2")).finished()
    for line in (
        "sample runs/mine 'The run'",
        "sample mine The run",
        "mine 'The run' --max-tokens=3",
        "runs/mine 'The run'",
    ):
        done = launched(tmp_path, *shlex.split(line))
        assert done.returncode == 2 and done.stdout == "", line
        command = shlex.split(done.stderr.strip().partition("; type: ")[2])[1:]
        assert command[0] == "sample" and {"--prompt=The run", "--workdir=runs/mine"} <= set(command)
    printed = launched(tmp_path, *command, "--max-tokens=3")
    assert printed.returncode == 0 and printed.stdout.startswith("The run"), printed.stderr
    assert run.summary()["steps"] == 2
