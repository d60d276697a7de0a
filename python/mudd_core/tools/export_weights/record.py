"""The statement about exported weights, and the two lines of the model card that quote it."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mudd_core.base.surroundings import program
from mudd_core.base.types import JsonObject
from mudd_core.checkpoint.weights_folder import Last
from mudd_core.config import Config
from mudd_core.provenance.check import sha256_of
from mudd_core.provenance.code import code_facts
from mudd_core.provenance.run_facts import RunFacts
from mudd_core.provenance.statement import NAME, statement_bytes
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.tools.export_weights.held_model import Alive
from mudd_core.tools.export_weights.model_card import NAME as CARD

if TYPE_CHECKING:
    from mudd_core.tools.export_weights.asked import Asked


@dataclass(frozen=True)
class Record:
    """The origin of an export: its arguments, and a step of a run. alive: the heartbeat of a rank."""

    asked: Asked
    run: RunFolder
    config: Config
    step: int
    alive: Alive

    def last(self, system: str) -> Last:
        """Return the function that writes the statement after the weights. system: the program of the folder."""
        return partial(self._files, system)

    def _files(self, system: str, folder: Path, files: Mapping[str, bytes]) -> dict[str, bytes]:
        weights = {}
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.alive()
                weights[path.relative_to(folder).as_posix()] = sha256_of(path)
        texts = {name: hashlib.sha256(data).hexdigest() for name, data in files.items() if name != CARD}
        sections = RunFacts(self.run, self.config, self.step, self.alive).sections()
        sections |= {"code": code_facts(), "export": self._form(system)}
        statement = statement_bytes(weights, texts, sections)
        found = {NAME: statement}
        if CARD in files:
            found[CARD] = files[CARD] + self._quote(statement).encode()
        return found

    def _form(self, system: str) -> JsonObject:
        """Return the arguments that determine the bytes of the weights."""
        args = self.asked.args
        chosen: JsonObject = {"system": system}
        if system == "peft" or args.adapter:
            chosen["adapter"] = True
        if args.gguf:
            chosen["type"] = args.type or "f16"
        if args.tokenizer:
            chosen["tokenizer"] = Path(args.tokenizer).name
        if args.average:
            chosen["average"] = True
        if self.asked.changes:
            chosen["changes"] = [*self.asked.changes]
        return {**chosen, "shardMb": args.shard_mb}

    def _quote(self, statement: bytes) -> str:
        """Return the lines of the model card about the statement."""
        check = shlex.join([*program(), "verify", "FOLDER"])
        sha256 = hashlib.sha256(statement).hexdigest()
        return (
            f"\n`{NAME}` (SHA-256 {sha256}) has the hashes of config, data, code and weights.\n"
            f"To compare this folder with it, type `{check}`.\n"
        )
