"""Builds of token caches that are killed: the next start continues the build, and the bytes are the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mudd_core.data import prepare
from mudd_core.data.documents import source
from text_settings import Settings, quiet

# Builds in forks of a fresh process, with two kinds of SIGKILL. "every": at Python's n-th file operation in the cache
# folder, for n = 1, 5, 9 and so on; an undisturbed start follows. "many": at the second rename of each start, so that
# each start completes one part.
DRIVER = """
import os, shutil, signal, sys
from pathlib import Path
from mudd_core.config import load_config
from mudd_core.data import pipelines
from mudd_core.data.documents import source
source.GROUP_BYTES = 3000
pipeline, text, root, kills = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]
here = ""
left = 0
def watch(event, arguments):
    global left
    in_folder = event in ("os.remove", "os.rmdir") and arguments[1] != -1  # of rmtree, by a descriptor
    if here and event in events and (in_folder or str(arguments[0]).startswith(here)):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
events = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir") if kills == "every" else ("os.rename",)
sys.addaudithook(watch)
def start(folder, n):
    global here, left
    pid = os.fork()
    if pid == 0:
        here, left = str(root / folder), n
        words = [f"data.pipeline={pipeline}", f"data.path={text}", f"data.cache_dir={here}", "data.tokenizer=bpe"]
        pipelines.prepare(load_config("tiny.py", [*words, "data.vocab_size=280"]), progress=lambda *_: None)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def content(folder):
    return {str(file.relative_to(root / folder)): file.read_bytes() for file in (root / folder).rglob("*/*")}
assert start("whole", 0) == 0
whole, n = content("whole"), int(kills == "every")
assert len(whole) == 3
if kills == "many":
    while (status := start("killed", 2)) == -signal.SIGKILL and n < 20:
        n += 1
    assert status == 0 and content("killed") == whole, (status, content("killed").keys())
else:
    while (status := start("killed", n)) != 0:
        assert status == -signal.SIGKILL, (n, status)
        assert start("killed", 0) == 0, n
        assert content("killed") == whole, (n, content("killed").keys())
        shutil.rmtree(root / "killed")
        n += 4  # every one takes four times as long
print(n)
"""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return documents of 9,000 bytes: three parts for training and one for validation."""
    folder = tmp_path_factory.mktemp("text")
    for number in range(10):
        (folder / f"{number}.txt").write_text(f"document {number} of a text \n" * 40)
    return folder


def kills(pipeline: str, text: Path, root: Path, how: str) -> int:
    """Return the number of times that a build was killed."""
    command = [sys.executable, "-c", DRIVER, pipeline, str(text), str(root), how]
    return int(subprocess.run(command, check=True, timeout=300, stdout=subprocess.PIPE).stdout)


@pytest.mark.parametrize(("pipeline", "parts"), [("text", 4), ("pack", 3)])
def test_a_build_continues_after_its_complete_parts(
    pipeline: str, parts: int, text: Path, tmp_path: Path
) -> None:
    """Check that each start completes one part, and the last start completes the cache."""
    assert kills(pipeline, text, tmp_path, "many") == parts - 1


@pytest.mark.parametrize("pipeline", ["text", "pack"])
def test_a_build_killed_at_any_instant_ends_with_the_same_bytes(
    pipeline: str, text: Path, tmp_path: Path
) -> None:
    assert kills(pipeline, text, tmp_path, "every") > 40


def _torn(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-6])


def _of_other_parts(file: Path) -> None:
    totals = file.with_name("totals.json")
    totals.write_text(json.dumps({**json.loads(totals.read_text()), "group_bytes": 7}))


def _of_nobody(file: Path) -> None:
    file.with_name("totals.json").write_text("[]")


@pytest.mark.parametrize(
    ("harm", "again"),
    [
        (None, False),
        (_torn, True),
        (_cut, True),
        (_of_other_parts, True),
        (_of_nobody, True),
        (Path.unlink, True),
    ],
)
@pytest.mark.parametrize("name", ["train.ids", "train.lengths"])
def test_parts_that_do_not_match_their_totals_are_made_again(
    harm: Callable[[Path], None] | None,
    again: bool,
    name: str,
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source, "GROUP_BYTES", 3000)

    def stop(phase: str, done: int, total: int) -> None:
        if phase == "encoding validation text":
            raise KeyboardInterrupt

    whole = prepare(Settings(str(text), str(tmp_path / "a"), "bytes"), progress=quiet)
    settings = Settings(str(text), str(tmp_path / "b"), "bytes")
    with pytest.raises(KeyboardInterrupt):
        prepare(settings, progress=stop)
    (file,) = tmp_path.glob(f"b/*.parts/{name}")
    if harm is not None:
        harm(file)
    phases: list[str] = []
    resumed = prepare(settings, progress=lambda phase, *_: phases.append(phase))
    assert ("encoding training text" in phases) == again
    assert resumed.file.read_bytes() == whole.file.read_bytes()
