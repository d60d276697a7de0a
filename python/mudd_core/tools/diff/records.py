"""Records of one step in files: written from a run, and compared with each other or with a run."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.surroundings import notes_stream
from mudd_core.base.types import Json, JsonObject
from mudd_core.fingerprint import Line, Pair, StepRecord, first_difference
from mudd_core.fingerprint.ulps import steps_between
from mudd_core.run.records.facts import data_fingerprint
from mudd_core.run.store.own_code import MEMBER as OWN_FILES
from mudd_core.tools.compare import Part, with_head
from mudd_core.tools.compare.compared import ComparedRun
from mudd_core.tools.diff.forms import other_forms, other_rows
from mudd_core.tools.diff.other_bits import other_bits
from mudd_core.tools.diff.replay import made_step, standing
from mudd_core.tools.diff.start import require_step
from mudd_core.tools.diff.ulps_text import ulps_text

_SHOWN = 16  # characters of a hash
# Members of a header that can be the cause, with their names for users.
_HEADER = {
    "package": "version",
    "config_hash": "hash of the config",
    "data_hash": "token cache",
    "code_hash": "hash of own code",
    "precision": "precision",
    "isa": "level *",
    "world": "ranks *",
}


def record_of(run: ComparedRun, step: int, *, train: bool = False, trust_code: bool = False) -> StepRecord:
    """Return the record of a step of a run, which is replayed in memory.

    train: also if the run has no checkpoint before the step, and that takes minutes. Raise UserError otherwise, and for
    a step that the run has not made.
    """
    require_step(run, step, train=train)
    if why := other_bits(run):
        print(f"warning: [diff] {run.typed}: its steps have other bits here: {why}", file=notes_stream())
    with standing(run, step - 1, trust_code=trust_code) as trainer:
        made = made_step(trainer).record
    facts = run.records.facts
    header = replace(made.header, data_hash=data_fingerprint(facts), code_hash=_hash_of_code(facts))
    return StepRecord(header, made.lines)


def _hash_of_code(facts: Mapping[str, Json]) -> str:
    """Return one hash of the user's files in the facts of a run, by field and content; empty without files."""
    own = facts.get(OWN_FILES)
    files = own.items() if isinstance(own, dict) else ()
    hashes = {key: file.get("sha256") for key, file in files if isinstance(file, dict)}
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest() if hashes else ""


@dataclass(frozen=True)
class ComparedRecords:
    """Two records of one step. pair: the first value that differs; None if all are equal."""

    a: StepRecord
    b: StepRecord
    forms: str
    pair: Pair | None

    @property
    def equal(self) -> bool:
        """Return whether all values are equal."""
        return self.pair is None and not self.forms


def compared_records(a: StepRecord, b: StepRecord) -> ComparedRecords:
    """Compare two records. Raise UserError for records of other families, steps or versions."""
    for name in ("family", "step"):
        one, two = getattr(a.header, name), getattr(b.header, name)
        if one != two:
            kind = "step" if name == "step" else f"the {name}"
            raise UserError(f"[diff] B: expected a record of {kind} {one}, as A is; got one of {kind} {two}")
    forms = other_forms(a, b)
    return ComparedRecords(a, b, forms, None if forms else first_difference(a, b))


def record_parts(names: tuple[str, str], found: ComparedRecords) -> list[Part]:
    """Return the comparison of two records as parts."""
    head = found.a.header
    rows = [[letter, name] for letter, name in zip("AB", names, strict=True)]
    records = Part(f"records of step {head.step:,}", [["", "record"], *rows], words=True)
    return [records, _headers(found), _first(found)]


def _headers(found: ComparedRecords) -> Part:
    fp32 = all(one.header.precision == "fp32" for one in (found.a, found.b))
    rows = [
        [
            text if fp32 else text.removesuffix(" *"),
            *(str(getattr(one.header, name))[:_SHOWN] or "-" for one in (found.a, found.b)),
        ]
        for name, text in _HEADER.items()
        if getattr(found.a.header, name) != getattr(found.b.header, name)
    ]
    if not rows:
        return Part(
            "settings: equal", (), ["Config, data, own code, version, level, precision and ranks are equal."]
        )
    notes = ["* does not affect the training in fp32"] if any("*" in row[0] for row in rows) else []
    return Part(
        f"settings: {len(rows)} differ{'s' * (len(rows) == 1)}",
        with_head("setting", ("A", "B"), rows),
        notes,
        words=True,
    )


def _first(found: ComparedRecords) -> Part:
    step = found.a.header.step
    if found.forms:
        return Part(
            f"step {step:,} has other values from its start", (), [f"In step {step:,} {found.forms}."]
        )
    if found.pair is None:
        count = len({line.key for line in found.a.lines} & {line.key for line in found.b.lines})
        return Part(f"equal at step {step:,}", (), [f"All {count:,} values have the same bits."])
    line = found.pair.a
    notes = [
        f"  type      {line.form()}",
        f"  samples   {sample_text(found.pair)}",
        f"  loss      {_loss(found)}",
    ]
    if rows := other_rows(found.a, found.b):
        notes.append(f"The batch has other ids in sequence {', '.join(map(str, rows[:5]))} (from 0).")
    notes.append(
        "All values before this one are equal. The records have digests and samples, no whole arrays; `diff` of two "
        "runs also counts the elements."
    )
    return Part(f"first value that differs: in step {step:,}, {line.title()}", (), notes)


def _loss(found: ComparedRecords) -> str:
    one, two = (record.header.loss for record in (found.a, found.b))
    return f"equal: {one!r}" if one == two else f"{one!r} in A, {two!r} in B"


def sample_text(pair: Pair) -> str:
    """Return how many of the samples differ, and by how much."""
    pairs = list(zip(pair.a.samples, pair.b.samples, strict=False))
    differ = [(x, y) for x, y in pairs if x != y and not (math.isnan(x) and math.isnan(y))]
    if not differ:
        return f"all {len(pairs)} are equal; other elements differ"
    text = f"{len(differ)} of {len(pairs)} differ, the first {differ[0][0]:.9g} in A, {differ[0][1]:.9g} in B"
    return f"{text}{_ulps(pair.a, differ)}"


def _ulps(line: Line, differ: list[tuple[float, float]]) -> str:
    """Return the largest difference of samples in units of the last place, for a type that NumPy has."""
    if line.dtype not in ("float32", "int32"):
        return ""
    one, two = (np.array(column, line.dtype) for column in zip(*differ, strict=True))
    return f"; largest {ulps_text(float(steps_between(one, two, line.dtype).max()))}"


def record_values(names: tuple[str, str], found: ComparedRecords) -> JsonObject:
    """Return the comparison for --json."""
    line = None if found.pair is None else found.pair.a
    return {
        "equal": found.equal,
        "step": found.a.header.step,
        "records": list(names),
        "settings": [
            {"name": name, "a": getattr(found.a.header, name), "b": getattr(found.b.header, name)}
            for name in _HEADER
            if getattr(found.a.header, name) != getattr(found.b.header, name)
        ],
        "forms": found.forms or None,
        "node": None
        if line is None
        else {"op": line.op, "stage": line.key.stage, "place": line.place, "value": line.key.value},
    }


def is_record(name: str) -> bool:
    """Return whether an argument names a file, and not the folder of a run."""
    return Path(name).is_file()
