"""The folder of a run, and where each of its files is.

A folder is made once, from the name that the user gives it. It is handed on whole: a module that reads or writes a file
asks the folder for that file, so no path passes from hand to hand.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from mudd_core.base.paths import IMPORTED, local
from mudd_core.base.storage import is_url, mapped, mirror_folder

CONFIG, RUN, SUMMARY = "config.json", "run.json", "summary.json"
METRICS, EVENTS, OUTPUT = "metrics.jsonl", "events.jsonl", "log.txt"
SAMPLES = "samples.jsonl"  # texts of sample.every
EVALUATIONS = "evaluations.jsonl"  # of weights that a command named
BENCHMARK_LOG = "mlperf_compliance.log"
SOURCE_TOKENIZER = "source-tokenizer.json"  # of the weights that a run started from
LOCK, LEASE, STOP = ".lock", ".lease", "STOP"
REMOTE = "remote.json"  # names the storage that the folder is a copy of
STAGED, UNFINISHED = ".fetch", ".fetch.part"  # of a fetch from a storage (run/store/fetch.py)
CHECKPOINTS, BOARD = "checkpoints", "tensorboard"
BASE, ASKED = "base", "tune.json"  # the model that a tuning starts from, and the config that it asks for
ARGUMENTS = "tune-arguments.json"  # that a tuning was started with
SOURCE = "source.json"  # the folder that such a model was imported from, and its files
ADAPTER = "adapter"  # what the adapters of a tuning begin with
TRACES = ("plugins", "plugins/profile")  # folders of traces, whose loss ends no run: links alone are refused
_ARGUMENT = "[arguments] --workdir"


@dataclass(frozen=True)
class RunFolder:
    """The work directory of a run. url: of the storage that it is a copy of, without a slash at its end; else empty.

    trusted: the caller allows the code in the folder to run (--trust-code, trust_code=True).
    """

    path: Path
    url: str = field(default="", compare=False)
    trusted: bool = field(default=False, compare=False)

    @classmethod
    def named(
        cls, name: str, mounts: str = "", argument: str = _ARGUMENT, *, trusted: bool = False
    ) -> RunFolder:
        """Return the folder that a user names by a path or a URL; UserError for a name that no folder can have.

        mounts: storage.map. A URL that it does not map is mirrored from a folder below runs/remote. argument: for the
        message, as [place] name.
        """
        name = mapped(name, mounts)
        if is_url(name):
            return cls(mirror_folder(name), name.rstrip("/"), trusted)
        return cls(local(name, argument), trusted=trusted)

    @classmethod
    def of_config(cls, name: str) -> RunFolder:
        """Return the folder of a run whose command names none: runs/<name of its config>."""
        return cls(local(Path("runs") / name, _ARGUMENT))

    @classmethod
    def holding(cls, path: Path) -> tuple[RunFolder, int | None]:
        """Return the folder of the run that a path names or is in, and its step for the folder of a checkpoint."""
        from mudd_core.checkpoint.steps import step_of

        if path.parent.name == CHECKPOINTS and (step := step_of(path.name)) is not None:
            return cls(path.parent.parent), step
        return cls(path.parent if path.name == CHECKPOINTS else path), None

    def __str__(self) -> str:
        return str(self.path)

    def absolute(self) -> RunFolder:
        """Return the same folder by its path from the root; UserError for a path that no folder can have."""
        return RunFolder(local(self.path, "[workdir] path").absolute(), self.url, self.trusted)

    def resolved(self) -> RunFolder:
        """Return the same folder by a path without links; OSError or RuntimeError for links in a circle."""
        return RunFolder(self.path.resolve(), self.url, self.trusted)

    @property
    def config_file(self) -> Path:
        """The config that the run was started with; it makes a folder one of ours."""
        return self.path / CONFIG

    @property
    def run_file(self) -> Path:
        """The id of the run and the facts that a resume compares."""
        return self.path / RUN

    @property
    def summary_file(self) -> Path:
        """How the last call of fit() ended."""
        return self.path / SUMMARY

    @property
    def metrics_file(self) -> Path:
        """One row of numbers an update or validation."""
        return self.path / METRICS

    @property
    def events_file(self) -> Path:
        """What happened, a line an event."""
        return self.path / EVENTS

    @property
    def samples_file(self) -> Path:
        """One text of sample.every a line."""
        return self.path / SAMPLES

    @property
    def evaluations_file(self) -> Path:
        """Evaluations of weights that a command named."""
        return self.path / EVALUATIONS

    @property
    def output_file(self) -> Path:
        """The copy of standard output."""
        return self.path / OUTPUT

    @property
    def stop_file(self) -> Path:
        """The file that asks for a stop."""
        return self.path / STOP

    def measured_beside(self) -> list[RunFolder]:
        """The folders with metrics beside this one, the newest metrics first; this one may be among them."""
        above = self.path.parent
        files = above.glob(f"*/{METRICS}") if above.is_dir() else ()
        return [RunFolder(file.parent) for file in sorted(files, key=_changed, reverse=True)]

    def take_stop_file(self) -> bool:
        """Whether the STOP file asks for a stop. It is taken away: the same command shall run on."""
        if not os.path.lexists(self.stop_file):
            return False
        with contextlib.suppress(OSError):  # a folder of that name asks too; the next start names it
            self.stop_file.unlink()
        return True

    @property
    def source_tokenizer_file(self) -> Path:
        """The tokenizer of the weights that the run started from."""
        return self.path / SOURCE_TOKENIZER

    @property
    def imported_folder(self) -> Path:
        """The files that came with the weights that were imported, for this run or as the base of its tuning."""
        own, of_base = self.path / IMPORTED, self.base_folder / IMPORTED
        return of_base if of_base.is_dir() and not own.is_dir() else own

    @property
    def base_folder(self) -> Path:
        """The model of Hugging Face that a tuning starts from, imported."""
        return self.path / BASE

    @property
    def source_file(self) -> Path:
        """Which folder the model of a tuning was imported from; in the folder of that model."""
        return self.path / SOURCE

    @property
    def adapter_folder(self) -> Path:
        """What the adapters of a tuning begin with, where it was given some."""
        return self.path / ADAPTER

    @property
    def asked_file(self) -> Path:
        """The config that a tuning asks for, before the run has begun."""
        return self.path / ASKED

    @property
    def arguments_file(self) -> Path:
        """The arguments that a tuning was started with."""
        return self.path / ARGUMENTS

    @property
    def board_folder(self) -> Path:
        """The event files of TensorBoard."""
        return self.path / BOARD

    @property
    def checkpoint_folder(self) -> Path:
        """The steps of the run."""
        return self.path / CHECKPOINTS

    def step_folder(self, step: int) -> Path:
        """The folder of a checkpoint, whether it is there or not."""
        from mudd_core.checkpoint.steps import step_folder

        return step_folder(self.checkpoint_folder, step)

    @property
    def is_copy(self) -> bool:
        """Whether the folder is the copy of a run in a storage."""
        return (self.path / REMOTE).exists()

    @property
    def has_staged(self) -> bool:
        """Whether a complete fetch from a storage waits to be moved into place."""
        return (self.path / STAGED).is_dir()

    @property
    def holds_run(self) -> bool:
        """Whether the config of a run is saved here."""
        return self.config_file.is_file()

    def has_config(self, file: str) -> bool:
        """Whether a file is the saved config of the run that is here."""
        return Path(file).absolute() == self.config_file.absolute() and self.holds_run

    @property
    def has_identity(self) -> bool:
        """Whether a start of the run got as far as its id."""
        return self.run_file.is_file()


def _changed(file: Path) -> float:
    """When the file was changed last."""
    return file.stat().st_mtime
