"""All logs of a run: opened at a step, synced before a checkpoint is committed, and closed together."""

from __future__ import annotations

from mudd_core.base.errors import SaveError, write_error, write_reason
from mudd_core.config import Config
from mudd_core.run.records.journal import Listener
from mudd_core.run.store.log_files import Board, Files
from mudd_core.run.store.metrics_file import COPY, Copy
from mudd_core.run.store.run_folder import BOARD, EVENTS, METRICS, SAMPLES, RunFolder


class Logs:
    """All logs of a run, opened at a step. Entries that cannot be written wait; `sync` raises if some still wait."""

    def __init__(self, folder: RunFolder) -> None:
        self.files, self.board, self.copy = Files(folder), Board(folder), Copy(folder)
        self._folder = folder
        self._sync_failed = False

    def listeners(self, config: Config) -> list[Listener]:
        """Return the logs of a run with this config."""
        return [self.files, *([self.copy] if config.log.metrics_file else []), self.board]

    def open(self, step: int, config: Config) -> None:
        """Open the logs and remove entries after the step; raise SaveError if one cannot be written."""
        try:
            self.files.open(step, config)
            self.copy.open(step, config)
            self.board.open(step, config)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise SaveError(f"[save] the logs in {self._folder}: {where}{write_reason(error)}") from error

    def sync(self) -> None:
        """Sync metrics.jsonl and samples.jsonl to disk; raise SaveError if that fails."""
        files, board = self.files, self.board.log
        assert files.metrics is not None and files.samples is not None and board is not None
        self._sync_failed = True
        logs = ((METRICS, files.metrics.sync), (SAMPLES, files.samples.sync), (BOARD, board.flush))
        for name, write in logs:
            try:
                write()
            except OSError as error:
                raise write_error(files.place(name), error) from error
        self._sync_failed = False

    def close_rows(self) -> None:
        """Close the files that `open` may open again at another step."""
        for log in (self.files.metrics, self.board.log, self.copy.log, self.files.samples):
            if log is not None:
                log.close()

    def close(self) -> None:
        """Close all logs. Raise SaveError if one cannot be written; only warn if `sync` has failed before."""
        files, board, copy = self.files, self.board, self.copy
        logs = {
            METRICS: (files, files.metrics),
            BOARD: (board, board.log),
            EVENTS: (files, files.events),
            SAMPLES: (files, files.samples),
            COPY: (copy, copy.log),
        }
        failed: dict[str, str] = {}
        for name, (owner, log) in logs.items():
            try:
                if log is not None:
                    log.close()
            except OSError as error:
                failed[name] = f"{owner.place(name)}: {write_reason(error)}"
        if failed and not self._sync_failed:
            raise SaveError(f"[save] {'; '.join(failed.values())}")
        for name, text in failed.items():
            logs[name][0].warn(name, text)
