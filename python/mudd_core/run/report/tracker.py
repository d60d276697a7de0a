"""Weights & Biases: a separate thread sends the metrics, so that a failing or slow tracker never stops the run."""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mudd_core.base.packages import needed
from mudd_core.base.types import Json, JsonObject
from mudd_core.config import LogConfig, to_dict
from mudd_core.run.records.events import StepRecord, Summary, Validation
from mudd_core.run.records.journal import Listener
from mudd_core.run.report.style import Style
from mudd_core.run.store.log_files import plain
from mudd_core.run.store.run_store import RunStore

FINISH_SECONDS = 60.0  # the longest wait for the tracker at the end of a run
_MODES = ("online", "offline", "disabled")
_Job = tuple[JsonObject, int | None]


def tracker_mode(log: LogConfig) -> str:
    """Return online, offline or off. WANDB_MODE overrides log.wandb unless that is off."""
    if log.wandb == "off":
        return "off"
    asked = os.environ.get("WANDB_MODE", "")
    mode = {"dryrun": "offline", "run": "online"}.get(asked, asked)
    mode = mode if mode in _MODES else log.wandb
    return "off" if mode == "disabled" else mode


def require_tracker(log: LogConfig) -> None:
    """Raise UserError if the config needs a tracker that is not installed."""
    if tracker_mode(log) != "off":
        needed("wandb", "[log] wandb", "to track the run")


def _obstacle() -> str:
    """Return the reason why the server cannot be reached; empty if it can, or if a proxy is set."""
    if not (os.environ.get("WANDB_API_KEY") or (Path.home() / ".netrc").is_file()):
        return "neither WANDB_API_KEY nor ~/.netrc is set"
    if os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy"):
        return ""
    url = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai"))
    try:
        socket.create_connection((url.hostname or "", url.port or 443), 5).close()
    except OSError as error:
        return f"{url.hostname}: {error}"
    return ""


class Tracker(Listener):
    """A listener that logs to Weights & Biases until the first call of fit() ends.

    The first failure prints one warning and ends the tracking.
    """

    def __init__(self, style: Style, store: RunStore) -> None:
        self._config, self._style, self._store = style.facts.config, style, store
        self._jobs: queue.Queue[_Job | None] = queue.Queue()
        self._dead = threading.Event()
        self._thread: threading.Thread | None = None  # from the start of the run to the end of fit()

    def began(self, step: int, documents: tuple[int, int]) -> None:
        # A daemon thread: a tracker that hangs cannot keep the process alive.
        self._thread = threading.Thread(target=self._work, name="tracker", daemon=True)
        self._thread.start()

    def took_step(self, record: StepRecord, *, logged: bool, seconds_left: float) -> None:
        if logged and self._thread is not None:
            self._send(self._style.tracked(record), record.step)

    def validated(self, result: Validation) -> None:
        if self._thread is not None:
            self._send(self._style.eval_tracked(result), result.step)

    def ended(self, summary: Summary, last: StepRecord | None, tail: Mapping[str, float]) -> None:
        if last is not None:
            self.took_step(last, logged=True, seconds_left=0.0)

    def finished(self, summary: Summary) -> None:
        """Send the summary, and wait for the tracker for at most FINISH_SECONDS."""
        if self._thread is not None:
            self._send(asdict(summary), None)
        self.closed()

    def _send(self, values: Mapping[str, Json], step: int | None) -> None:
        if not self._dead.is_set():
            self._jobs.put((plain(dict(values)), step))

    def closed(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._jobs.put(None)
        thread.join(FINISH_SECONDS)
        if thread.is_alive():
            self._warn(f"it has not finished after {FINISH_SECONDS:.0f} s")

    def _warn(self, reason: object) -> None:
        if not self._dead.is_set():
            self._dead.set()
            print(f"warning: Weights & Biases: {reason}; the run continues without it", file=sys.stderr)

    def _work(self) -> None:
        try:
            run = self._begin()
            while (job := self._jobs.get()) is not None:
                values, step = job
                if step is None:
                    run.summary.update(values)
                else:
                    run.log(values, step=step)
            run.finish()
        except BaseException as error:
            self._warn(f"{type(error).__name__}: {str(error)[:300]}")

    def _begin(self) -> Any:
        wandb = needed("wandb", "[log] wandb", "to track the run")
        log = self._config.log
        mode = tracker_mode(log)
        if mode == "online" and (obstacle := _obstacle()):
            print(f"warning: Weights & Biases: offline, because {obstacle}", file=sys.stderr)
            mode = "offline"
        if "WANDB_MODE" in os.environ:
            os.environ["WANDB_MODE"] = mode  # the library rejects an empty value
        folder = Path(log.wandb_dir) if log.wandb_dir else self._store.folder.path
        folder.mkdir(parents=True, exist_ok=True)
        return wandb.init(
            project=log.wandb_project,
            entity=log.wandb_entity or None,
            dir=str(folder),
            id=log.wandb_run or self._store.run_id,
            name=self._config.name,
            config=to_dict(self._config),
            mode=mode,
            resume="allow" if mode == "online" else None,
            settings=wandb.Settings(console="off", silent=True),
        )
