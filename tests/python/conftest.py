"""Fixtures that several test files share: folders, generated documents, one token cache."""

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

# Restore the default handler, as in a terminal: the background job of a shell ignores Ctrl-C, and children inherit
# that.
signal.signal(signal.SIGINT, signal.default_int_handler)
# A cluster job may run the tests; the variables of its launcher must not reach the runs of the tests.
for name in PROCESS_COUNTS:
    os.environ.pop(name, None)
# Runs with the user's code are recorded there; tests must not write into the home folder of the user.
_state = tempfile.TemporaryDirectory(prefix="mudd_test_state_")
os.environ["XDG_STATE_HOME"] = _state.name
MEMORY = Path("/dev/shm")
# No deadline, because a busy machine distorts times. The same examples each time, so that a failure is due to the
# change.
settings.register_profile(
    "house", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("house")
NEED = 32 << 20  # a container's /dev/shm often has only 64 MiB
# Files that take up to minutes: started last, one of them would leave the other cores idle.
FIRST = ("documents", "cli")


# In a copy without the folder of a program, skip the test files that import from it.
GONE = {"jax_lm", "maxtext", "moe", "mu_transformer"} - set(NAMES)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore a test file that imports a program whose folder is missing. Return None to leave the choice to pytest."""
    if not GONE or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text()
    return any(f"from mudd_core.programs.{name}" in text for name in GONE) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move files with runs to the front, for `--no-loadscope-reorder`; by their number of tests they would be last."""
    place = {name: number for number, name in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(item.path.parent.name, len(FIRST)))


@pytest.fixture(autouse=True)
def _families() -> Iterator[None]:
    """Restore the registered families after each test, so that the next tests in this process do not see new ones."""
    with mock.patch.dict(FAMILIES):
        yield


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """Return a folder like tmp_path, in memory if possible: thousands of syncs to a disk take minutes."""
    usable = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > NEED
    with tempfile.TemporaryDirectory(prefix="mudd_test_", dir=MEMORY if usable else tmp_path) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def tiny_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the documents of every tiny run of this session; their token cache is stored next to them."""
    folder = tmp_path_factory.mktemp("tiny") / "text"
    folder.mkdir()
    return write_text(folder)


@pytest.fixture(scope="session")
def whole(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """Return the uninterrupted run of one process that runs of ranks are compared with."""
    return run_of(tmp_path_factory.mktemp("whole") / "run", tiny_text).finished()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write_folder(tmp_path_factory.mktemp("text") / "docs", 60, 1500)


@pytest.fixture(scope="session")
def cache(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> TokenCache:
    return prepare(Settings(str(folder), str(tmp_path_factory.mktemp("cache"))), progress=quiet)


@pytest.fixture
def copy(cache: TokenCache, tmp_path: Path) -> Path:
    """Return a cache folder that the test may damage."""
    return Path(shutil.copytree(cache.path, tmp_path / cache.fingerprint))


@pytest.fixture
def hangs_up() -> Iterator[None]:
    """Restore SIGHUP for child processes, as in a terminal; under nohup they would ignore it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
