"""Ways to end a run at a step, and the check that the resumed run has the bits and log entries of an unbroken one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import streaming_cases
from fake_engine import FakeEngine, fake_assembly
from fake_runs import rows_of
from mudd_core import _core
from mudd_core.config import Config, from_dict, to_dict
from mudd_core.run.loop.trainer import Trainer

# Functions that return the config of a run, with more arguments.
Recipe = Callable[..., Config]


@dataclass(frozen=True)
class End:
    """A way to end a run after `step` updates. words: arguments that only this start has."""

    way: str
    step: int
    words: tuple[str, ...] = ()


@dataclass
class Run:
    """A run in a folder that ends and restarts; the next start must resume at `step`."""

    recipe: Recipe
    open: str  # a key of OPENERS
    folder: Path
    killer: Killer | None = None  # for ends by SIGKILL
    step: int = 0
    resumed: list[int] = field(default_factory=list)
    final_hash: str = ""

    def start(self, *words: str) -> Trainer:
        """Open the run and check that it is at its newest saved step."""
        trainer = OPENERS[self.open](self.recipe(*words), self.folder)
        assert trainer.step_done == self.step, trainer.step_done
        return trainer

    def end(self, end: End) -> None:
        """Start the run and end it in this way."""
        if self.step:
            self.resumed.append(self.step)
        WAYS[end.way](self, end)
        if end.way in LOSING:
            every = self.recipe().train.save_every
            self.step = max(self.step, end.step // every * every)
        else:
            self.step = end.step

    def finish(self) -> Run:
        """Start the run and let it finish."""
        if self.step:
            self.resumed.append(self.step)
        with self.start() as trainer:
            summary = trainer.fit()
        assert summary.stopped is None
        self.final_hash = summary.final_hash
        return self

    def events(self) -> list[dict[str, Any]]:
        """Return the events of all starts."""
        file = self.folder / "events.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def require_same_end(run: Run, ends: Sequence[End], whole: Run) -> None:
    """End a run in these ways, finish it, and compare it with the unbroken run."""
    for end in ends:
        run.end(end)
    assert run.finish().final_hash == whole.final_hash
    assert rows_of(run.folder) == rows_of(whole.folder)
    assert [event["step"] for event in run.events() if event["event"] == "resumed"] == run.resumed


# ---- openers, and the process that forks runs to be killed ---------------------------------------------------


def _real(config: Config, folder: Path) -> Trainer:
    return Trainer(config, folder, progress=None, trust_code=True)


def _fake(config: Config, folder: Path) -> Trainer:
    return Trainer(config, folder, assemble=fake_assembly(FakeEngine()))


OPENERS: dict[str, Callable[[Config, Path], Trainer]] = {"real": _real, "fake": _fake}


class Killer:
    """A process that has imported everything and computed nothing; it forks the runs that are killed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def kill(self, run: Run, end: End, point: str) -> None:
        """Let a fork train until the kill point, or until `end.step` updates are done."""
        if self._process is None:
            command = [sys.executable, __file__]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        asked = [run.open, to_dict(run.recipe(*end.words)), str(run.folder), run.step, end.step, point]
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        assert self._process.stdout.readline() == f"{-signal.SIGKILL}\n"

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.communicate()


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    """Yield the process of a test file whose forks are killed."""
    with closing(Killer()) as found:
        yield found


def _serve() -> None:
    """Fork a run for each line of standard input, and print its exit code."""
    streaming_cases.make_small(setattr)
    out = os.dup(1)
    os.dup2(2, 1)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                _train(*json.loads(line))
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        _, status = os.waitpid(child, 0)
        os.write(out, f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _train(opener: str, config: dict[str, Any], folder: str, start: int, step: int, point: str) -> None:
    if point:
        os.environ["MUDD_KILL_AT"] = point
    with OPENERS[opener](from_dict(config), Path(folder)) as trainer:
        assert trainer.step_done == start
        if not point:
            _before(trainer, step, lambda: os.kill(os.getpid(), signal.SIGKILL))
        trainer.fit()


# ---- the ways ------------------------------------------------------------------------------------------------


def _stop_at(run: Run, end: End) -> None:
    with run.start(*end.words, f"train.stop_at={end.step}") as trainer:
        summary = trainer.fit()
    assert (summary.step, summary.stopped) == (end.step, "train.stop_at")


def _fit(run: Run, end: End) -> None:
    with run.start(*end.words) as trainer:
        summary = trainer.fit(end.step - run.step)
    assert (summary.step, summary.stopped) == (end.step, "fit(steps)")


def _save(run: Run, end: End) -> None:
    """End like a script that leaves the loop and saves."""
    with run.start(*end.words) as trainer:
        for record in trainer:
            if record.step == end.step:
                trainer.save()
                break


def _request(run: Run, end: End) -> None:
    with run.start(*end.words) as trainer:
        _before(trainer, end.step, _core.request_stop)
        summary = trainer.fit()
    _core.clear_requests()
    assert (summary.step, summary.stopped) == (end.step, "request")


def _ctrl_c(run: Run, end: End) -> None:
    with pytest.raises(KeyboardInterrupt), run.start(*end.words) as trainer:
        _before(trainer, end.step, lambda: os.kill(os.getpid(), signal.SIGINT))
        trainer.fit()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler and not _core.stop_requested()


def _stop_file(run: Run, end: End) -> None:
    with run.start(*end.words) as trainer:
        _before(trainer, end.step - 1, (run.folder / "STOP").touch)
        summary = trainer.fit()
    assert (summary.step, summary.stopped) == (end.step, "STOP file")


def _crash(run: Run, end: End) -> None:
    def crash() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), run.start(*end.words) as trainer:
        _before(trainer, end.step, crash)
        trainer.fit()


def _kill(run: Run, end: End) -> None:
    """End by SIGKILL before the next update."""
    assert run.killer is not None
    run.killer.kill(run, end, "")


def _kill_in_save(run: Run, end: End) -> None:
    """End by SIGKILL in the save after `step` + 1 updates, after its weights and moments are written."""
    assert run.killer is not None and run.recipe().train.save_every == 1
    run.killer.kill(run, end, f"before_manifest:{end.step + 1 - run.step}")


def _before(trainer: Trainer, step: int, act: Callable[[], object]) -> None:
    """Call `act` before update number `step` + 1."""
    engine: Any = trainer.engine
    take = engine.train_step

    def train_step(number: int, *arguments: Any, **more: Any) -> Any:
        if number == step:
            act()
        return take(number, *arguments, **more)

    engine.train_step = train_step


WAYS: dict[str, Callable[[Run, End], None]] = {
    "train.stop_at": _stop_at,
    "fit(steps)": _fit,
    "save()": _save,
    "request": _request,
    "Ctrl-C": _ctrl_c,
    "STOP file": _stop_file,
    "crash": _crash,
    "SIGKILL": _kill,
    "SIGKILL in a save": _kill_in_save,
}
# Ends without a save: the next start resumes at the newest multiple of train.save_every.
LOSING = ("crash", "SIGKILL", "SIGKILL in a save")

if __name__ == "__main__":
    _serve()
