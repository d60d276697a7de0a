"""Data that are unavailable for a while: read again with equal bits; for too long: the run saves and exits with 74."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mudd_core import _core
from mudd_core.base.errors import FormatError
from mudd_core.config import Config, load_config
from mudd_core.run.loop import lost_source
from mudd_core.run.loop.lost_source import LostSource, SourceLostError
from mudd_core.run.loop.trainer import Trainer
from tiny_run import CONFIG, TIMES

kept: list[Any] = []  # objects that must live as long as the files opened through them


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Return the list of waits in seconds; the test does not really wait."""
    found: list[float] = []
    monkeypatch.setattr(lost_source, "pause", found.append)
    yield found
    _core.testing.use_files(None)
    _core.clear_requests()


def config_of(text: Path, cache: Path, *words: str) -> Config:
    """Return the config of a run of six steps with a separate token cache, because tests move its file."""
    data = [f"data.path={text}", f"data.cache_dir={cache}"]
    size = ["train.steps=6", "train.save_every=2", "train.eval_every=3", "train.micro_batch_size=2"]
    return load_config(str(CONFIG), [*data, *size, *words])


def trained(
    config: Config, path: Path, before: Callable[[Trainer, int], None] = lambda trainer, step: None
) -> Any:
    """Return the hash and log entries of a run. before: called with the trainer before each step."""
    with Trainer(config, path) as trainer:
        take = trainer.engine.train_step

        def step(number: int, *arguments: Any, **named: Any) -> Any:
            before(trainer, number)
            return take(number, *arguments, **named)

        trainer.engine.train_step = step
        final = trainer.fit().final_hash
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return final, [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def events_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ENOENT])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_lost_read_is_made_again_and_no_bit_changes(
    code: int, nth: int, waits: list[float], tiny_text: Path, tmp_path: Path
) -> None:
    config = config_of(tiny_text, tmp_path / "cache")
    wanted = trained(config, tmp_path / "alone")
    files = _core.testing.FaultFiles()
    kept.append(files)
    _core.testing.use_files(files)

    def lose(trainer: Trainer, number: int) -> None:
        # Just after a save; the second and third read are for later micro-batches.
        if number == 2 and not waits:
            files.fail_at(files.count + nth, code)

    assert trained(config, tmp_path / "lost", lose) == wanted
    lost = [event for event in events_of(tmp_path / "lost") if event["event"] == "source lost"]
    assert [(event["step"], event["retry"], event["wait"]) for event in lost] == [(3, 1, 1.0)]
    assert lost[0]["file"].endswith("tokens.h5") and lost[0]["reason"] == os.strerror(code)
    assert waits == [1.0]


def test_a_file_that_comes_back_late_is_waited_for(
    waits: list[float], tiny_text: Path, tmp_path: Path
) -> None:
    config = config_of(tiny_text, tmp_path / "cache")
    wanted = trained(config, tmp_path / "alone")
    gone: list[Path] = []

    def lose(trainer: Trainer, number: int) -> None:
        if number == 4 and not gone:
            (file,) = (tmp_path / "cache").glob("*/tokens.h5")
            gone.append(file)
            file.rename(file.with_name("away"))
            raise OSError(errno.ESTALE, "Stale file handle", str(file))

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            gone[0].with_name("away").rename(gone[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lost_source, "pause", wait)
        assert trained(config, tmp_path / "lost", lose) == wanted
    assert waits == [1.0, 2.0, 4.0]


def test_a_file_that_stays_away_ends_the_run_with_74_saved(
    waits: list[float], tiny_text: Path, tmp_path: Path
) -> None:
    config = config_of(tiny_text, tmp_path / "cache", "data.retries=3")
    wanted = trained(config, tmp_path / "alone")

    def lose(trainer: Trainer, number: int) -> None:
        if number == 3:
            raise OSError(errno.EIO, "Input/output error", "tokens.h5")

    with pytest.raises(SourceLostError, match="while step 4 was read, 4 times") as error:
        trained(config, tmp_path / "lost", lose)
    assert error.value.exit_code == 74
    assert waits == [1.0, 2.0, 4.0]
    assert (tmp_path / "lost" / "checkpoints" / "step-3").is_dir()
    assert trained(config, tmp_path / "lost") == wanted


def test_other_errors_are_not_tried_again(waits: list[float]) -> None:
    source = LostSource(5, lambda: None, lambda *_: None)

    def shrank() -> None:
        raise FormatError("tokens.h5", 7, "file shrank")

    with pytest.raises(FormatError):
        source.reading(1, shrank)

    def refused() -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with pytest.raises(PermissionError):
        source.reading(1, refused)
    assert waits == []


def test_a_stop_ends_the_waiting(tiny_text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> None:
        raise OSError(errno.EIO, "Input/output error")

    _core.request_stop()
    try:
        assert LostSource(5, lambda: None, lambda *_: None).reading(1, lost) is None
    finally:
        _core.clear_requests()
