"""The settings of two runs that differ, each with the kind of setting and whether it can change the training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mudd_core.base.types import Json, JsonObject
from mudd_core.config.own_files import plain_name
from mudd_core.run.build.base import BASE_FACT
from mudd_core.run.records.events import EventName
from mudd_core.run.records.facts import BF16_UNIT, FP32_ORDER, SINCE, WIRE_HOSTS, data_fingerprint
from mudd_core.run.store.own_code import MEMBER as OWN_FILES
from mudd_core.tools.compare.compared import ComparedRun
from mudd_core.tools.compare.settings import UNKNOWN, config_rows, data_rows, machine_rows, program_rows

_BITS = (FP32_ORDER, BF16_UNIT, WIRE_HOSTS, SINCE)
CODE_OF = "code of "  # the start of the name of a setting: the hash of the user's code of a field
_CODE = ("version", "commit")
_TOKENIZER = ("vocabulary", "tokenizer")
# Facts that only runs with another value of a field have.
_FACT_OF = {BF16_UNIT: "train.precision", WIRE_HOSTS: "mesh.wire"}
REWINDS = "rewound from step"


@dataclass(frozen=True)
class Setting:
    """A setting with other values in two runs.

    kind: config, seed, base, data, tokenizer, code, level, machine, resumes or rewinds.

    free: it does not affect the training, such as a field that may change on resume.
    """

    kind: str
    name: str
    base: str
    other: str
    free: bool = False

    def to_dict(self) -> JsonObject:
        """Return the setting for --json."""
        return {
            "kind": self.kind,
            "name": self.name,
            "a": self.base,
            "b": self.other,
            "affects_training": not self.free,
        }


def settings_that_differ(base: ComparedRun, other: ComparedRun) -> list[Setting]:
    """Return the settings with other values in two runs; those that affect the training come first."""
    runs = (base, other)
    found = [*_of_config(runs), *_of_data(runs), *_of_program(runs), *_resumes(runs), *_rewinds(runs)]
    return sorted(found, key=lambda one: one.free)


def _of_config(runs: Sequence[ComparedRun]) -> Iterator[Setting]:
    fixed, free = config_rows(runs)
    # Hashes decide whether other paths have other content.
    paths = [
        *(("data.path", "data.tokenizer") if _same_data(runs) else ()),
        *(("start.load_parameters_path",) if _same_base(runs) else ()),
    ]
    for name, one, two in fixed:
        kind = "seed" if name.endswith(".seed") else "config"
        yield Setting(kind, name, one, two, name in paths or _same_code(runs, name, one, two))
    for name, one, two in free:
        yield Setting("config", name, one, two, True)


def _same_data(runs: Sequence[ComparedRun]) -> bool:
    one, two = (data_fingerprint(run.records.facts) for run in runs)
    return bool(one) and one == two


def _same_code(runs: Sequence[ComparedRun], field: str, one: str, two: str) -> bool:
    """Return whether both values FILE.py:NAME of a field name the same code, in files with the same content."""
    if plain_name(one) != plain_name(two):
        return False
    own = [run.records.facts.get(OWN_FILES) for run in runs]
    files = [of_run.get(field) if isinstance(of_run, dict) else None for of_run in own]
    hashes = [file.get("sha256") if isinstance(file, dict) else None for file in files]
    return bool(hashes[0]) and hashes[0] == hashes[1]


def _same_base(runs: Sequence[ComparedRun]) -> bool:
    one, two = (run.records.facts.get(BASE_FACT) for run in runs)
    return bool(one) and one == two


def _of_data(runs: Sequence[ComparedRun]) -> Iterator[Setting]:
    for name, one, two in data_rows(runs):
        yield Setting("tokenizer" if name in _TOKENIZER else "data", name, one, two)


def _of_program(runs: Sequence[ComparedRun]) -> Iterator[Setting]:
    fields = {name for name, *_ in config_rows(runs)[0]}
    for name, one, two in program_rows(runs):
        if _FACT_OF.get(name) not in fields or UNKNOWN not in (one, two):
            yield Setting(_kind(name), name, one, two)
    # Only the bits of earlier versions depend on the instruction set level itself.
    old = any(FP32_ORDER not in run.records.facts for run in runs)
    for name, one, two in machine_rows(runs):
        if name in _CODE:
            yield Setting("code", name, one, two)
        elif name == "ranks":
            yield Setting("machine", name, one, two, not any(map(uneven_ranks, runs)))
        else:
            yield Setting(
                "level" if name == "level" else "machine", name, one, two, name != "level" or not old
            )


def _kind(name: str) -> str:
    """Return the kind of a fact about the program."""
    if name.startswith(CODE_OF):
        return "code"
    return "base" if name == BASE_FACT else "level" if name in _BITS else "config"


def uneven_ranks(run: ComparedRun) -> int:
    """Return the ranks on which the bits of a run depend, which mesh.any_world allows; 0 if they do not."""
    config = run.records.config
    if not config.mesh.any_world:
        return 0
    ranks = (event.get("ranks") for event in run.records.events)
    shards = config.train.shard_count()
    return max(
        (count for count in ranks if isinstance(count, int) and count > 0 and shards % count), default=0
    )


def _resumes(runs: Sequence[ComparedRun]) -> Iterator[Setting]:
    one, two = map(_resumed_after, runs)
    if one != two:
        yield Setting("resumes", "resumed after step", one, two, True)


def _rewinds(runs: Sequence[ComparedRun]) -> Iterator[Setting]:
    """Yield the rewinds if they differ: a rewind leaves out the batches of its steps."""
    one, two = map(_rewound, runs)
    if one != two:
        yield Setting("rewinds", REWINDS, one, two)


def _rewound(run: ComparedRun) -> str:
    found = (event for event in run.records.events if event["event"] == EventName.REWOUND)
    steps = [(event.get("from_step"), event.get("to_step")) for event in found]
    return ", ".join(f"{begin} to {end}" for begin, end in steps if _before(end, run)) or "never"


def _before(step: Json, run: ComparedRun) -> bool:
    return isinstance(step, int) and step < max(1, run.last_step)


def _resumed_after(run: ComparedRun) -> str:
    """Return the steps after which a run was resumed, as text; `never` if there are none."""
    steps = (event.get("step") for event in run.records.events if event["event"] == "resumed")
    found = sorted({step for step in steps if isinstance(step, int) and _before(step, run)})
    return ", ".join(f"{step:,}" for step in found) or "never"
