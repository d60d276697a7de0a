"""What the arguments of a command line ask for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.config import Config
from mudd_core.run.store.config_source import ConfigSource
from mudd_core.run.store.own_code import TRUST
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.saved_run import mounts_in

if TYPE_CHECKING:
    from mudd_core.programs.resolved import Resolved

MISSING_CONFIG = "[arguments] --config=FILE is missing, for example --config=small.py"


@dataclass
class Request:
    """What the words ask for. config is None without --config, and for commands that read a run.

    resolved: what a command in the grammar of an original program comes to; typed: its arguments. stops: the texts of
    --stop, the one option that may be repeated; options has the last of them.
    """

    command: str = "train"
    config: Config | None = None
    words: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    source: ConfigSource | None = None
    resolved: Resolved | None = None
    typed: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        """Lines for the user about arguments that do nothing here."""
        return [] if self.resolved is None else self.resolved.notes

    @property
    def folder(self) -> RunFolder:
        """The work directory: --workdir, or runs/<config name>."""
        named = self.options.get("--workdir")
        if named is None:
            folder = RunFolder.of_config(self.required_config().name)
            return replace(folder, trusted=TRUST in self.options)
        return RunFolder.named(named, self.mounts, trusted=TRUST in self.options)

    @property
    def typed_workdir(self) -> str:
        """The work directory as the user names it: a path, or a URL."""
        return self.options.get("--workdir") or str(self.folder)

    @property
    def mounts(self) -> str:
        """storage.map of the arguments, else of the config."""
        return mounts_in(self.words) or ("" if self.config is None else self.config.storage.map)

    def required_config(self) -> Config:
        """The checked config; UserError if none was given."""
        if self.config is None:
            raise UserError(MISSING_CONFIG)
        return self.config
