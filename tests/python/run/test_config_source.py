"""A resume by the same command uses the saved config; the config file runs again only if it or the arguments
changed.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path

import pytest

from fake_engine import FakeEngine, fake_assembly
from mudd_core.base.errors import UserError
from mudd_core.cli.argv import parse
from mudd_core.cli.request import Request
from mudd_core.cli.requested import request_of
from mudd_core.cli.training import _adopted
from mudd_core.config import Config
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.store.run_store import RunStore

FILE = """
from pathlib import Path
from mudd_core.config import Config, TrainConfig
def get_config():
    with open("ran", "a") as file:
        file.write("x")
    return Config(name={name}, train=TrainConfig(steps=3, seed=4))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FILE.format(name="'mine'"))
    return tmp_path


def started(*words: str) -> Request:
    """Return the request that `train` makes of these arguments, with the small engine."""
    request = request_of(parse(words))
    with contextlib.closing(RunStore(request.folder)) as store:
        config = _adopted(store, request.required_config(), request, 1)
        with Trainer(config, store, assemble=fake_assembly(FakeEngine())) as trainer:
            trainer.fit()
    return request


def times() -> int:
    return len(Path("ran").read_text())


@pytest.mark.parametrize("where", [("--workdir=run",), ()])
def test_the_same_command_runs_the_file_once(folder: Path, where: tuple[str, ...]) -> None:
    first = started("--config=mine.py", *where, "optim.lr=0.5")
    for _ in range(2):
        assert started("--config=mine.py", *where, "optim.lr=0.5").config == first.config
    assert times() == 1
    started("--config=mine.py", *where, "optim.lr=0.5", "train.log_every=2")
    assert times() == 2  # the arguments changed
    started("--config=mine.py", *where, "optim.lr=0.5", "train.log_every=2")
    assert times() == 2


def test_an_extension_is_no_change_of_the_config_by_the_user(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started("--config=mine.py", "--workdir=run", "optim.schedule=constant")
    longer = ("--workdir=run", "train.steps=6", "train.extend=true")
    for _ in range(2):
        assert started(*longer).config.train.steps == 6
    assert "has changed" not in capsys.readouterr().out


def test_a_changed_file_runs_again_and_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("--config=mine.py", "--workdir=run")
    started(*command)
    file = folder / "mine.py"
    file.write_text(file.read_text() + "# a comment\n")
    started(*command)
    assert times() == 2
    assert f"{file} has changed since the run was started" in capsys.readouterr().out
    started(*command)
    assert times() == 2  # the changed config is now the saved one
    file.write_text(file.read_text().replace("seed=4", "seed=5"))
    with pytest.raises(UserError, match=r"(?s)train\.seed: saved 4, asked 5.*mine\.py has changed"):
        started(*command)


def test_files_that_the_config_reads_and_imports_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "base.py").write_text((folder / "mine.py").read_text())
    (folder / "helper_of_mine.py").write_text("STEPS = 3\n")
    (folder / "mine.py").write_text(
        "import dataclasses, helper_of_mine\nfrom mudd_core.config import read_config\n"
        "def get_config():\n    return dataclasses.replace(read_config('base.py'), name='mine')\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    command = ("--config=mine.py", "--workdir=run")
    for changed in ("base.py", "helper_of_mine.py", "mine.py"):
        sys.modules.pop("helper_of_mine", None)
        importlib.invalidate_caches()
        request = started(*command)
        assert request.source is not None
        assert next(Path(path).name for path in request.source.files) == "mine.py"
        before = times()
        started(*command)
        assert times() == before, changed
        file = folder / changed
        file.write_text(file.read_text() + "# changed\n")
        sys.modules.pop("helper_of_mine", None)
        started(*command)
        assert times() == before + 1, changed


def test_a_name_that_the_file_computes_runs_it_each_time(folder: Path) -> None:
    (folder / "mine.py").write_text(FILE.format(name="'r' + str(1000 + Path('ran').stat().st_size)"))
    assert [started("--config=mine.py").required_config().name for _ in range(2)] == ["r1001", "r1002"]


def test_a_json_config_and_other_commands_are_read_as_before(folder: Path) -> None:
    started("--config=mine.py", "--workdir=run")
    assert isinstance(request_of(parse(["--config=mine.py", "--workdir=run", "--plan"])).config, Config)
    assert times() == 2
    request = started("--config=run/config.json", "--workdir=run")
    assert request.required_config().train.seed == 4
    (folder / "run" / "run.json").write_text("{")
    assert request_of(parse(["--config=mine.py", "--workdir=run"])).required_config().train.seed == 4
    assert times() == 3
