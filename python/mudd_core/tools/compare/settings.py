"""The settings of runs that differ: config fields, datasets, tokenizers, programs and machines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from mudd_core.base.regular_files import read_bytes
from mudd_core.base.types import Json, JsonObject
from mudd_core.config.describe import shown
from mudd_core.config.fields import FieldInfo, walk
from mudd_core.data.tokenizers.files import VOCABULARIES
from mudd_core.run.records.facts import DATA_FACT, SEAL_FACT, bits_text
from mudd_core.run.records.machine import MACHINE
from mudd_core.run.store.config_source import MEMBER as SOURCE
from mudd_core.run.store.own_code import MEMBER as OWN_FILES
from mudd_core.run.store.resumed_config import MEMBER as BOUND
from mudd_core.tools.compare import Part, with_head
from mudd_core.tools.compare.compared import ComparedRun

_ABSENT = "-"  # shown for a field that the family of a run does not have
_FREE = " *"

# Entries of run.json that always differ between runs, or repeat the config.
_OF_EACH_RUN = ("run_id", "started", SOURCE, BOUND)
SEAL = "seal of the cache"
_OF_DATA = {DATA_FACT: "token cache", SEAL_FACT: SEAL, "vocab_size": "vocabulary"}
_SHOWN = 16  # characters of a hash that are shown
UNKNOWN = "not recorded"
_NAMES = ("version", "commit", "cpu", "level", "threads", "ranks")


def config_part(runs: Sequence[ComparedRun], letters: Sequence[str]) -> Part:
    """Return the fields that differ. A mark shows fields that may change on resume, because they change no result."""
    fixed, free = config_rows(runs)
    notes = ["* does not affect the training"] if free else []
    rows = [*fixed, *([name + _FREE, *values] for name, *values in free)]
    title = f"config: {len(rows)} field{'s' * (len(rows) != 1)} differ{'s' * (len(rows) == 1)}"
    return Part(title if rows else "config: equal", with_head("field", letters, rows), notes, words=True)


def config_rows(runs: Sequence[ComparedRun]) -> tuple[list[list[str]], list[list[str]]]:
    """Return rows of the fields that differ: those that affect the training, and those that may change on resume."""
    infos = [{info.path: info for info in walk(run.records.config)} for run in runs]
    names = dict.fromkeys(path for of_run in infos for path in of_run)
    fixed, free = list[list[str]](), list[list[str]]()
    for name in names:
        found = [of_run.get(name) for of_run in infos]
        if len({None if info is None else info.value for info in found}) == 1:
            continue
        may_change = any(info is not None and info.free_on_resume for info in found)
        (free if may_change else fixed).append([name, *map(_value, found)])
    return fixed, free


def _value(info: FieldInfo | None) -> str:
    return _ABSENT if info is None else shown(info.value)


def data_part(runs: Sequence[ComparedRun], letters: Sequence[str]) -> Part:
    """Return token caches, vocabularies and tokenizers that differ."""
    found = _of_data(runs)
    if rows := _differing(found):
        return Part("documents and tokenizers differ", with_head("", letters, rows), words=True)
    known = [f"{name} {_fact(values[0])}" for name, values in found.items() if values[0] is not None]
    return Part("documents and tokenizer: equal", (), [", ".join(known)] if known else [])


def data_rows(runs: Sequence[ComparedRun]) -> list[list[str]]:
    """Return rows of the token caches, vocabularies and tokenizers that differ."""
    return _differing(_of_data(runs))


def _of_data(runs: Sequence[ComparedRun]) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {
        shown_name: [run.records.facts.get(name) for run in runs] for name, shown_name in _OF_DATA.items()
    }
    return {**found, "tokenizer": [_tokenizer(run) for run in runs]}


def machine_part(runs: Sequence[ComparedRun], letters: Sequence[str]) -> Part:
    """Return programs and machines that differ between runs, or between the starts of one run."""
    if rows := [*machine_rows(runs), *program_rows(runs)]:
        return Part("program and machine differ", with_head("", letters, rows), words=True)
    return Part(
        "program and machine: equal", (), [f"{machine_text(runs[0])}; {bits_text(runs[0].records.facts)}"]
    )


def program_rows(runs: Sequence[ComparedRun]) -> list[list[str]]:
    """Return rows of the facts about bits, and of the hashes of user code, that differ."""
    facts = [_of_program(run) for run in runs]
    names = dict.fromkeys(name for of_run in facts for name in of_run)
    return _differing({name: [of_run.get(name) for of_run in facts] for name in names})


def _of_program(run: ComparedRun) -> JsonObject:
    """Return the entries of run.json about program and machine, and the hashes of user code by field."""
    facts = run.records.facts
    found = {
        name: value for name, value in facts.items() if name not in (*_OF_DATA, *_OF_EACH_RUN, OWN_FILES)
    }
    own = facts.get(OWN_FILES)
    for field, file in own.items() if isinstance(own, dict) else ():
        found[f"code of {field}"] = file.get("sha256") if isinstance(file, dict) else None
    return found


def _differing(found: Mapping[str, Sequence[Json]]) -> list[list[str]]:
    """Return a row for each name whose values differ."""
    return [
        [name, *map(_fact, values)]
        for name, values in found.items()
        if any(value != values[0] for value in values)
    ]


def _fact(value: Json) -> str:
    """Return an entry as text; of a hash, only the first digits."""
    if value is None:
        return UNKNOWN
    return value[:_SHOWN] if isinstance(value, str) else json.dumps(value)


def _tokenizer(run: ComparedRun) -> str | None:
    """Return the hash of the tokenizer's files in a run's folder, `bytes`, or None if neither is known."""
    folder, named = run.records.folder.path, run.records.config.data.tokenizer
    files = [folder / name for name in VOCABULARIES if (folder / name).is_file()]
    if not files:
        return named if named == "bytes" else None
    return hashlib.sha256(b"".join(read_bytes(file, links=False) for file in files)).hexdigest()


def machine_rows(runs: Sequence[ComparedRun]) -> list[list[str]]:
    """Return a row of strings for each name that differs between runs or within one: name, then one cell per run."""
    parts = [_parts(run) for run in runs]
    rows = []
    for name in _NAMES:
        texts = [_text(one, name) for one in parts]
        if len(set(texts)) > 1 or any(" to step " in text for text in texts):
            rows.append([name, *texts])
    return rows


def machine_text(run: ComparedRun) -> str:
    """Return the program and machine that trained a run, as a sentence without its end."""
    parts = _parts(run)
    known = [f"{name} {_text(parts, name)}" for name in _NAMES if _text(parts, name) != UNKNOWN]
    return ", ".join(known) or UNKNOWN


def _parts(run: ComparedRun) -> list[tuple[int, JsonObject]]:
    """Return (step before its first, machine) of each start or resume whose steps are still part of the run."""
    found: list[tuple[int, JsonObject]] = []
    for event in run.records.events:
        step = event.get("step", 0)
        if event["event"] not in ("started", "resumed") or not isinstance(step, int):
            continue
        while found and found[-1][0] >= step:
            found.pop()
        machine = event.get(MACHINE)
        # An event records its ranks only if they are several.
        ranks = {"ranks": event["ranks"]} if "ranks" in event else {}
        found.append((step, {"ranks": 1, **machine, **ranks} if isinstance(machine, dict) else ranks))
    return [(step, machine) for step, machine in found if step < max(1, run.last_step)]


def _text(parts: Sequence[tuple[int, JsonObject]], name: str) -> str:
    """Format the values of a name in the order of the steps: `avx2 to step 10, then avx512`."""
    values: list[tuple[int, str]] = []
    for step, machine in parts:
        value = _shown(machine.get(name))
        if not values or values[-1][1] != value:
            values.append((step, value))
    ends = [step for step, _ in values[1:]]
    texts = [f"{value} to step {end:,}" for (_, value), end in zip(values, ends, strict=False)]
    return ", then ".join([*texts, values[-1][1]]) if values else UNKNOWN


def _shown(value: Json) -> str:
    return UNKNOWN if value is None else str(value)
