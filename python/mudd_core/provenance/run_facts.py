"""Facts in a run's folder about its origin: config, data, tokenizer, base, commands and losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.types import Array, Json, JsonObject
from mudd_core.checkpoint import final_hash, is_weight, whole_parts
from mudd_core.checkpoint.manifest_reader import read_manifest
from mudd_core.checkpoint.stored import StoredTensor, stored_tensors
from mudd_core.config import Config, config_hash
from mudd_core.config.arguments import argument
from mudd_core.config.fields import Scalar, walk
from mudd_core.interop.imported import base_source
from mudd_core.provenance.data_facts import DataFacts
from mudd_core.run.build.base import BASE_FACT, weights_sha256
from mudd_core.run.build.start_source import read_source
from mudd_core.run.records.events import EventName
from mudd_core.run.records.facts import BF16_UNIT, FP32_ORDER, SINCE, WIRE_HOSTS
from mudd_core.run.records.machine import COMMAND, MACHINE, MODULES
from mudd_core.run.store.json_files import facts_of
from mudd_core.run.store.metrics import events_of, rows_of
from mudd_core.run.store.own_code import MEMBER as OWN
from mudd_core.run.store.run_folder import RunFolder

MOST_LOSSES = 1000  # losses in a statement; of more, evenly spaced ones
_MOST_STARTS = 1000
# Fields that only say where something is on this machine, or what is printed.
_LOCAL = (
    "data.cache_dir",
    "storage.",
    "hub.",
    "log.",
    "dist.",
    "mesh.",
    "sample.",
    "train.profile",
    "train.threads",
)
_KEPT = ("mesh.wire",)
_STARTS = (EventName.STARTED, EventName.RESUMED, EventName.IMPORTED)


@dataclass
class RunFacts:
    """The sections of a statement about a run. missing: sentences about facts that the run's files lack.

    alive: called for each weight that is hashed, the heartbeat of a rank for which others wait.
    """

    run: RunFolder
    config: Config
    step: int
    alive: Callable[[], None]
    missing: list[str] = field(default_factory=list)

    def sections(self) -> JsonObject:
        """Return the sections config, data, tokenizer, base, run and missing."""
        data, tokenizer = DataFacts(self.run, self.config, self.missing).sections()
        found: JsonObject = {
            "config": self._config(),
            "data": data,
            "tokenizer": tokenizer,
            "base": self._base(),
            "run": self._run(),
        }
        return {**found, "missing": [*self.missing]}

    def _config(self) -> JsonObject:
        return {"hash": config_hash(self.config), "values": config_values(self.config)}

    def _base(self) -> JsonObject | None:
        """Return the section of the weights from which the run started; None for a run from random weights."""
        named = self.config.start.load_parameters_path
        known = facts_of(self.run).get(BASE_FACT)
        if isinstance(known, str):
            return {
                "name": Path(base_source(self.run) or named).name,
                "sha256": known,
                "hashed": "at the start",
            }
        if not named and not any(row["event"] == EventName.IMPORTED for row in events_of(self.run)):
            return None
        place = Path(named) if named else self.run.step_folder(0)
        name = place.name if named else "imported"
        try:
            sha256 = weights_sha256(read_source(place, warns=False).tensors)
        except (UserError, FormatError, OSError):
            self.missing.append(f"base.sha256: the weights from which the run started ({name}) are gone")
            return {"name": name}
        return {"name": name, "sha256": sha256, "hashed": "at the export"}

    def _run(self) -> JsonObject:
        facts = facts_of(self.run)
        bits: JsonObject = {
            name: facts[name] for name in (FP32_ORDER, BF16_UNIT, WIRE_HOSTS, SINCE) if name in facts
        }
        starts = list(_starts(self.run, self.step))
        rewinds = sum(row["event"] == EventName.REWOUND for row in events_of(self.run))
        if lacking := sum(COMMAND not in one for one in starts if one["event"] != EventName.IMPORTED):
            self.missing.append(
                f"run.starts: {lacking} of {len(starts)} starts have no command, because an earlier version or a "
                "Python program made them"
            )
        return {
            "id": facts.get("run_id"),
            "step": self.step,
            "finalHash": weights_hash(self.run, self.step, self.alive),
            "bits": bits,
            "own": own_files(facts),
            "rewinds": rewinds,
            "starts": list[Json](starts[:_MOST_STARTS]),
            "losses": losses(self.run, self.step),
        }


def config_values(config: Config) -> JsonObject:
    """Return the fields that differ from the defaults of the family, with the last part of absolute paths only."""
    usual = {info.path: info.value for info in walk(Config(model=type(config.model)()))}
    usual["model.family"] = ""  # always written
    return {
        info.path: _on_any_machine(info.value)
        for info in walk(config)
        if info.value != usual.get(info.path) and not is_local(info.path)
    }


def is_local(path: str) -> bool:
    """Return True for a field that a statement does not contain: a place on a machine, or what is printed."""
    return path.startswith(_LOCAL) and path not in _KEPT


def own_files(facts: JsonObject) -> JsonObject:
    """Return name and SHA-256, by field, of the user's own files of a run. facts: the content of run.json."""
    raw = facts.get(OWN)
    named = {key: one for key, one in raw.items() if isinstance(one, dict)} if isinstance(raw, dict) else {}
    return {
        key: {"name": _last(str(one.get("name"))), "sha256": one.get("sha256")} for key, one in named.items()
    }


def weights_hash(run: RunFolder, step: int, alive: Callable[[], None]) -> str:
    """Return the final hash of a checkpoint's weights, as summary.json has it for the last step. alive: as above."""
    folder = run.step_folder(step)
    stored = stored_tensors(folder, read_manifest(folder))

    def after_a_beat(tensor: StoredTensor) -> StoredTensor:
        def read(begin: int, end: int) -> Array:
            alive()
            return tensor.elements(begin, end)

        return StoredTensor(tensor.shape, tensor.dtype, read)

    return final_hash(
        whole_parts({name: after_a_beat(one) for name, one in stored.items() if is_weight(name)})
    )


def losses(run: RunFolder, step: int) -> JsonObject:
    """Return steps and losses of logged updates up to a step, at most MOST_LOSSES of them, with the last one."""
    found = [(row["step"], row["loss"]) for row in rows_of(run) if "loss" in row and row["step"] <= step]
    found = found[:: -(-len(found) // MOST_LOSSES) or 1] + found[-1:] if len(found) > MOST_LOSSES else found
    kept = dict(found)
    finite = {at: one for at, one in kept.items() if isinstance(one, int | float) and math.isfinite(one)}
    return {"step": [*finite], "loss": [*finite.values()]}


def _starts(run: RunFolder, step: int) -> Iterator[JsonObject]:
    """Yield the starts and resumes of a run before a step: the command, the version, and the changed fields."""
    for row in events_of(run):
        at = row.get("step")
        is_late = row["event"] == EventName.RESUMED and isinstance(at, int) and at >= step
        if row["event"] not in _STARTS or is_late:
            continue
        machine = row.get(MACHINE)
        facts: JsonObject = {"event": row["event"], "step": row.get("step", 0)}
        if isinstance(machine, dict):
            facts |= {
                name: machine[name] for name in ("version", "commit", "level", MODULES) if name in machine
            }
        if isinstance(command := row.get(COMMAND), list):
            facts[COMMAND] = [_argument(word) for word in command if isinstance(word, str)]
        if changed := row.get("changed"):
            facts["changed"] = changed
        if ranks := row.get("ranks"):
            facts["ranks"] = ranks
        yield facts


def _argument(word: str) -> str:
    """Return an argument with the last part of an absolute path only."""
    typed = argument(word)
    return _last(word) if typed.value is None else f"{typed.option}={_last(typed.value)}"


def _on_any_machine(value: Scalar) -> Scalar:
    """Return the value of a field with the last part of absolute paths only. It may be a list of paths or options."""
    if not isinstance(value, str) or "/" not in value:
        return value
    return " ".join(",".join(map(_argument, word.split(","))) for word in value.split(" "))


def _last(name: str) -> str:
    return Path(name).name if Path(name).is_absolute() else name
