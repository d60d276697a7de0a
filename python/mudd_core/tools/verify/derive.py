"""Derive exported weights again: train the config of a statement, and export with the same arguments."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.types import Json
from mudd_core.checkpoint.gguf_file import STORED
from mudd_core.config import Config
from mudd_core.interop import systems
from mudd_core.provenance.check import Findings, digits_that_differ, sha256_of
from mudd_core.provenance.statement import Statement
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.facts import DATA_FACT, SEAL_FACT
from mudd_core.run.store.json_files import facts_of
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.tools.export_weights.command import export_run
from mudd_core.tools.export_weights.folder import OWN
from mudd_core.tools.verify.derived_data import derived_data

_PLACE = "[verify] --train"
_LINES = 10  # progress lines of a derivation


@dataclass(frozen=True)
class Derivation:
    """A derivation in a folder. places: arguments of the export, such as --tokenizer=PATH."""

    statement: Statement
    config: Config
    folder: Path
    places: Sequence[str]

    def run(self, found: Findings) -> None:
        """Train to the step of the statement, and compare data, losses, weights and files, in this order."""
        statement, run = self.statement, RunFolder(self.folder / "run")
        if run.path.exists():
            raise UserError(
                f"{_PLACE}: expected a new folder, got {run.path}, which exists; give another --workdir"
            )
        step = statement.step
        if not 0 < step <= self.config.train.steps:
            raise UserError(
                f"{_PLACE}: expected a step of the run, 1 to {self.config.train.steps}, got {step}"
            )
        wanted = self._losses()
        with Trainer(self.config, run.path) as trainer:
            if (text := self._other_data(run)) != "" or (text := derived_data(statement, run, self.config)):
                found.differs.append(text)
                return
            if self.statement.text("data", "seal"):
                found.unshown = [text for text in found.unshown if not text.startswith("the data ")]
                found.shown.append("the tokens have the seal of the statement")
            if (text := _trained(trainer, step, wanted, final=self._has_rewinds())) != "":
                found.differs.append(text)
                return
            sha256 = trainer.final_hash()
        if sha256 != statement.text("run", "finalHash"):
            ours, theirs = digits_that_differ(sha256, statement.text("run", "finalHash") or "nothing")
            found.differs.append(
                f"weights: derived again, step {step} has the final hash {ours}, the statement says {theirs}"
            )
            return
        found.shown.append(
            f"training here gives the final hash and the logged losses ({len(wanted):,}) of the statement"
        )
        self._compare_files(run, found)

    def _losses(self) -> dict[int, float]:
        """Return the logged losses of the statement by step."""
        losses = self.statement.section("run").get("losses")
        steps, values = (
            (losses.get(name) for name in ("step", "loss")) if isinstance(losses, dict) else (None, None)
        )
        if not isinstance(steps, list) or not isinstance(values, list) or len(steps) != len(values):
            raise UserError(
                f"{_PLACE}: {self.statement.place}: run.losses: expected steps and as many losses"
            )
        pairs = zip(steps, values, strict=True)
        return {
            int(step): float(value)
            for step, value in pairs
            if isinstance(step, int) and isinstance(value, int | float) and abs(value) < 1e308
        }

    def _has_rewinds(self) -> bool:
        """Return True if the run went back to a checkpoint, so that only its last losses are logged."""
        return self.statement.section("run").get("rewinds") != 0

    def _other_data(self, run: RunFolder) -> str:
        """Return how the tokens differ from the run's; empty if they do not."""
        facts, data = facts_of(run), self.statement.section("data")
        for name, key in (("seal", SEAL_FACT), ("fingerprint", DATA_FACT)):
            wanted = data.get(name)
            if isinstance(wanted, str) and wanted and facts.get(key) not in (None, wanted):
                ours, theirs = digits_that_differ(str(facts.get(key)), wanted[:80])
                return (
                    f"data: their tokens have the {name} {ours}, the statement says {theirs}: the text or the "
                    "tokenizer is another one"
                )
        return ""

    def _compare_files(self, run: RunFolder, found: Findings) -> None:
        """Export the derived run with the arguments of the statement, and compare the weight files."""
        out = self.folder / "export"
        with redirect_stdout(sys.stderr):
            outcome = export_run(self._export_words(run, out), Ranks())
        if outcome.differs:
            raise UserError(f"{_PLACE}: {outcome.text}")
        named = {**self.statement.subject, **self.statement.files}
        apart = [name for name in self._with_paths() if named.pop(name, None)]
        what = "all other files" if apart else "all files"
        found.unshown += [f"{name}, which has a path of the first machine" for name in apart]
        got = {name: sha256_of(out / name) if (out / name).is_file() else "" for name in named}
        wrong = sorted(name for name, sha256 in named.items() if got[name] != sha256)
        found.differs += [f"{name}: derived and exported again, the file is another one" for name in wrong]
        if not wrong:
            found.shown.append(f"exported here, {what} have the same bytes")

    def _with_paths(self) -> list[str]:
        """Return the files of the export that have a path of the machine: to own code, or to an adapter's base."""
        if self.statement.section("export").get("adapter") is True:
            return [
                name for name in self.statement.files if name.endswith(("adapter_config.json", "Modelfile"))
            ]
        return ["config.json"] if self.statement.section("run").get("own") else []

    def _export_words(self, run: RunFolder, out: Path) -> list[str]:
        section, step = self.statement.section("export"), self.statement.step
        system, kind = self.statement.text("export", "system"), self.statement.text("export", "type")
        if system not in (*systems(), OWN, "peft", "gguf") or (kind and kind not in STORED):
            raise UserError(f"{_PLACE}: {self.statement.place}: export: unknown program or type")
        single = next(iter(self.statement.subject))
        is_file = system == "gguf" and single not in ("model.gguf", "adapter.gguf")
        words = [f"--workdir={run.path}", f"--to={out / single if is_file else out}", f"--step={step}"]
        words += ["--gguf", f"--type={kind or 'f16'}"] if system == "gguf" else []
        words += [f"--system={system}"] if system in (*systems(), OWN) else []
        words += ["--adapter", "--base=base"] if section.get("adapter") is True else []
        words += ["--average"] if section.get("average") is True else []
        size = section.get("shardMb")
        words += [f"--shard-mb={size}"] if isinstance(size, int) and size != 4096 else []
        changes = section.get("changes")
        words += [one for one in _texts(changes) if one.lstrip("-").startswith("model.")]
        return [*words, *self.places]


def _trained(trainer: Trainer, step: int, wanted: dict[int, float], *, final: bool) -> str:
    """Train up to a step and save. Return the first loss that differs from the wanted one; empty if none does.

    final: compare the losses only at the end.
    """
    got: dict[int, float] = {}
    shown = max(1, step // _LINES)
    for record in trainer:
        got[record.step] = record.loss
        if not final and record.step in wanted and wanted[record.step] != record.loss:
            trainer.save()
            break
        if record.step % shown == 0 and record.step < step:
            print(
                f"derive: step {record.step:,} of {step:,}, loss {record.loss:.4f}",
                file=sys.stderr,
                flush=True,
            )
        if trainer.step_done >= step:
            break
    else:
        if trainer.step_done < step:
            return f"step {trainer.step_done}: the training ended here, the statement is about step {step}"
    for at in sorted(wanted):
        if at <= step and at in got and got[at] != wanted[at]:
            return (
                f"step {at}: the first logged step that is not equal; derived again, its loss is {got[at]!r}, the "
                f"statement says {wanted[at]!r}"
            )
    trainer.save()
    return ""


def _texts(value: Json) -> Iterator[str]:
    return (one for one in value if isinstance(one, str)) if isinstance(value, list) else iter(())
