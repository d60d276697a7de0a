"""Fixtures that several test files share: folders, texts, one token cache."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

from mudd_core.base.surroundings import PROCESS_COUNTS
from mudd_core.config import FAMILIES
from mudd_core.config.programs import NAMES
from mudd_core.data import TokenCache, prepare, synthetic
from rank_faults import run_of
from text_settings import Settings, quiet
from tiny_run import TinyRun, write_text

# What a terminal's program has: a shell's background job ignores Ctrl-C, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
# A job of a cluster may run the tests; what it says of its tasks is not meant for the runs of the tests.
for name in PROCESS_COUNTS:
    os.environ.pop(name, None)
# Runs with code of the user's are noted there; the tests leave no notes in the home folder of who runs them.
_state = tempfile.TemporaryDirectory(prefix="mudd_test_state_")
os.environ["XDG_STATE_HOME"] = _state.name
MEMORY = Path("/dev/shm")
# Times say nothing on a busy machine; the same examples every time, so that a failure is the change's.
settings.register_profile(
    "house", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("house")
NEED = 32 << 20  # containers often have 64 MiB there
# Their files take up to minutes: started last, one would leave the other cores idle.
FIRST = ("documents", "cli")


# A copy without the folder of a program is tested without the files that import from it.
GONE = {"jax_lm", "maxtext", "moe", "mu_transformer"} - set(NAMES)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out a file of tests that imports a program whose folder is gone; None leaves the choice to pytest."""
    if not GONE or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text()
    return any(f"from mudd_core.programs.{name}" in text for name in GONE) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of runs first, for `--no-loadscope-reorder`: by their number of tests they would be the last."""
    place = {name: number for number, name in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(item.path.parent.name, len(FIRST)))


@pytest.fixture(autouse=True)
def _families() -> Iterator[None]:
    """The families as they were: what one test registers, the tests after it in the same process do not see."""
    with mock.patch.dict(FAMILIES):
        yield


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """Like tmp_path, in memory where there is such a folder: thousands of syncs to a disk take minutes."""
    usable = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > NEED
    with tempfile.TemporaryDirectory(prefix="mudd_test_", dir=MEMORY if usable else tmp_path) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def tiny_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The text of every tiny run of this session; its token cache stands beside it."""
    folder = tmp_path_factory.mktemp("tiny") / "text"
    folder.mkdir()
    return write_text(folder)


@pytest.fixture(scope="session")
def whole(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """The unbroken run of one process that runs of ranks are compared with."""
    return run_of(tmp_path_factory.mktemp("whole") / "run", tiny_text).finished()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write_folder(tmp_path_factory.mktemp("text") / "docs", 60, 1500)


@pytest.fixture(scope="session")
def cache(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> TokenCache:
    return prepare(Settings(str(folder), str(tmp_path_factory.mktemp("cache"))), progress=quiet)


@pytest.fixture
def copy(cache: TokenCache, tmp_path: Path) -> Path:
    """A cache folder to damage."""
    return Path(shutil.copytree(cache.path, tmp_path / cache.fingerprint))


@pytest.fixture
def hangs_up() -> Iterator[None]:
    """SIGHUP as a terminal's programs have it, for what the test starts: under nohup they would ignore it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
