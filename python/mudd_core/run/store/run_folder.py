"""The folder of a run and the paths of its files.

A RunFolder is created once from the user's path or URL. Modules get the path of each file from it.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from mudd_core.base.paths import IMPORTED, local
from mudd_core.base.storage import is_url, mapped, mirror_folder

CONFIG, RUN, SUMMARY = "config.json", "run.json", "summary.json"
METRICS, EVENTS, OUTPUT = "metrics.jsonl", "events.jsonl", "log.txt"
SAMPLES = "samples.jsonl"  # file of the samples of sample.every
EVALUATIONS = "evaluations.jsonl"  # file of the evaluations of weights that a command names
BENCHMARK_LOG = "mlperf_compliance.log"
SOURCE_TOKENIZER = "source-tokenizer.json"  # the tokenizer of the weights from which a run started
LOCK, LEASE, STOP = ".lock", ".lease", "STOP"
REMOTE = "remote.json"  # names the storage that the folder is a copy of
STAGED, UNFINISHED = ".fetch", ".fetch.part"  # stages of a download (run/store/fetch.py)
CHECKPOINTS, BOARD = "checkpoints", "tensorboard"
BASE, ASKED = "base", "tune.json"  # the base model of fine-tuning, and its requested config
ARGUMENTS = "tune-arguments.json"  # the arguments of fine-tuning
SOURCE = "source.json"  # the origin of an imported base, and its files
REFERENCE = "reference.json"  # the reference's log-probabilities of pairs of answers
ADAPTER = "adapter"  # the initial adapters of fine-tuning
TRACES = (
    "plugins",
    "plugins/profile",
)  # folders of traces, which may be lost: only links are rejected
_ARGUMENT = "[arguments] --workdir"


@dataclass(frozen=True)
class RunFolder:
    """The work directory of a run. url: the URL that it is a copy of, without a final slash; otherwise empty.

    typed: the path as the user typed it, for commands to type; otherwise empty. trusted: the caller allows code in the
    folder to run (--trust-code, trust_code=True). read_only: nothing in the folder may change.
    """

    path: Path
    url: str = field(default="", compare=False)
    trusted: bool = field(default=False, compare=False)
    read_only: bool = field(default=False, compare=False)
    typed: str = field(default="", compare=False)

    @classmethod
    def named(
        cls, name: str, mounts: str = "", argument: str = _ARGUMENT, *, trusted: bool = False
    ) -> RunFolder:
        """Return the folder for a user's path or URL; raise UserError for an impossible name.

        mounts: storage.map. An unmapped URL is mirrored from a folder below runs/remote. argument: its name for
        messages, as `[place] name`.
        """
        name = mapped(name, mounts)
        if is_url(name):
            return cls(mirror_folder(name), name.rstrip("/"), trusted)
        return cls(local(name, argument), trusted=trusted, typed=name)

    @classmethod
    def of_config(cls, name: str) -> RunFolder:
        """Return the default folder of a run: runs/<name of its config>."""
        return cls(local(Path("runs") / name, _ARGUMENT), typed=str(Path("runs") / name))

    @classmethod
    def holding(cls, path: Path) -> tuple[RunFolder, int | None]:
        """Return the folder of the run at or above a path, and the step if the path is a checkpoint."""
        from mudd_core.checkpoint.steps import step_of

        if path.parent.name == CHECKPOINTS and (step := step_of(path.name)) is not None:
            return cls(path.parent.parent), step
        return cls(path.parent if path.name == CHECKPOINTS else path), None

    def __str__(self) -> str:
        return str(self.path)

    def absolute(self) -> RunFolder:
        """Return the same folder with an absolute path; raise UserError for an impossible path."""
        return replace(self, path=local(self.path, "[workdir] path").absolute())

    def resolved(self) -> RunFolder:
        """Return the same folder with links resolved; raise OSError or RuntimeError for cyclic links."""
        return replace(self, path=self.path.resolve())

    @property
    def config_file(self) -> Path:
        """The config with which the run was started. It identifies the folder as a run."""
        return self.path / CONFIG

    @property
    def run_file(self) -> Path:
        """The id of the run, and the facts that a resume compares."""
        return self.path / RUN

    @property
    def summary_file(self) -> Path:
        """The summary of the last fit()."""
        return self.path / SUMMARY

    @property
    def metrics_file(self) -> Path:
        """The metrics, one line for each logged update or validation."""
        return self.path / METRICS

    @property
    def events_file(self) -> Path:
        """The events, one per line."""
        return self.path / EVENTS

    @property
    def samples_file(self) -> Path:
        """The samples of sample.every, one per line."""
        return self.path / SAMPLES

    @property
    def evaluations_file(self) -> Path:
        """The evaluations of weights that a command names."""
        return self.path / EVALUATIONS

    @property
    def output_file(self) -> Path:
        """The copy of standard output."""
        return self.path / OUTPUT

    @property
    def stop_file(self) -> Path:
        """The file that requests a stop."""
        return self.path / STOP

    def measured_beside(self) -> list[RunFolder]:
        """Return the folders with metrics in the same parent folder, newest metrics first.

        This folder may be one of them.
        """
        above = self.path.parent
        files = above.glob(f"*/{METRICS}") if above.is_dir() else ()
        return [RunFolder(file.parent) for file in sorted(files, key=_changed, reverse=True)]

    def take_stop_file(self) -> bool:
        """Return True if the STOP file exists, and remove the file, so that the same command can resume."""
        if not os.path.lexists(self.stop_file):
            return False
        # A folder with that name also requests a stop; the next start reports it.
        with contextlib.suppress(OSError):
            self.stop_file.unlink()
        return True

    @property
    def source_tokenizer_file(self) -> Path:
        """The tokenizer of the weights from which the run started."""
        return self.path / SOURCE_TOKENIZER

    @property
    def imported_folder(self) -> Path:
        """The additional files of imported weights, of this run or of the base of its fine-tuning."""
        own, of_base = self.path / IMPORTED, self.base_folder / IMPORTED
        return of_base if of_base.is_dir() and not own.is_dir() else own

    @property
    def base_folder(self) -> Path:
        """The imported Hugging Face model from which fine-tuning starts."""
        return self.path / BASE

    @property
    def source_file(self) -> Path:
        """The origin of an imported base, in the folder of that model."""
        return self.path / SOURCE

    @property
    def adapter_folder(self) -> Path:
        """The initial adapters of fine-tuning, if there are any."""
        return self.path / ADAPTER

    @property
    def reference_file(self) -> Path:
        """The reference's log-probabilities of the pairs of answers."""
        return self.path / REFERENCE

    @property
    def asked_file(self) -> Path:
        """The requested config of fine-tuning, before the run has started."""
        return self.path / ASKED

    @property
    def arguments_file(self) -> Path:
        """The arguments of fine-tuning."""
        return self.path / ARGUMENTS

    @property
    def board_folder(self) -> Path:
        """The event files of TensorBoard."""
        return self.path / BOARD

    @property
    def checkpoint_folder(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / CHECKPOINTS

    def step_folder(self, step: int) -> Path:
        """Return the folder of a checkpoint, which may not exist."""
        from mudd_core.checkpoint.steps import step_folder

        return step_folder(self.checkpoint_folder, step)

    @property
    def is_copy(self) -> bool:
        """True if the folder is the copy of a run in remote storage."""
        return (self.path / REMOTE).exists()

    @property
    def has_staged(self) -> bool:
        """True if a complete download is not yet moved into place."""
        return (self.path / STAGED).is_dir()

    @property
    def holds_run(self) -> bool:
        """True if the folder has the saved config of a run."""
        return self.config_file.is_file()

    def has_config(self, file: str) -> bool:
        """Return True if a file is the saved config of this run."""
        return Path(file).absolute() == self.config_file.absolute() and self.holds_run

    @property
    def has_identity(self) -> bool:
        """True if a start of the run has written its id."""
        return self.run_file.is_file()

    @property
    def is_own_run(self) -> bool:
        """True if the folder has a started run. A folder of Hugging Face also has a config.json, but no id."""
        return self.holds_run and self.has_identity


def _changed(file: Path) -> float:
    """Return the modification time of a file."""
    return file.stat().st_mtime
