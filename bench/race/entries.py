"""The runs of the race: their steps from the step times, their keys, and the file of finished ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from contestants import BASE, ROOT, Contestant
from step_times import StepTime

KINDS = ("charged", "dense", "equal")
# charged: the steps that fit into the minutes if only touched rows are updated; dense: with the measured time of
# the step; equal: the tokens of the base in these minutes.


@dataclass(frozen=True)
class Entry:
    """A run with its own complete schedule."""

    corpus: str
    name: str
    steps: int
    seed: int
    digest: str  # of the config file, the model file and the arguments

    @property
    def folder(self) -> str:
        """The name of the run's work directory."""
        return f"{self.corpus}-{self.name}-{self.steps}-{self.seed}-{self.digest}"


@dataclass(frozen=True)
class Result:
    """A finished run. seconds: of the run on a machine that may have been busy; no comparison reads it."""

    entry: Entry
    bits_per_byte: float
    seconds: float
    final_hash: str
    commit: str
    date: str


def steps_of(one: Contestant, times: dict[str, StepTime], minutes: float, kind: str) -> int:
    """Return the number of steps of a budget; at least 1."""
    if kind == "equal":
        base = steps_of(Contestant(BASE), times, minutes, "charged")
        return max(1, base // _batches(one))
    if one.clock not in times:
        raise SystemExit(f"[race] {one.clock} has no step time; type: python bench/race/race.py measure")
    seconds = times[one.clock].charged if kind == "charged" else times[one.clock].dense
    return max(1, int(60 * minutes / seconds))


def _batches(one: Contestant) -> int:
    """Return the size of a batch relative to the base."""
    for argument in one.arguments:
        if argument.startswith("train.batch_size="):
            return int(argument.split("=")[1]) // 4
    return 1


def digest_of(one: Contestant) -> str:
    """Return a hash of the files and arguments that determine the bits of a run."""
    whole = hashlib.sha256("\n".join((one.config, *one.arguments)).encode())
    for argument in one.arguments:
        if argument.startswith("model.family="):
            whole.update((ROOT / argument.split("=")[1].split(":")[0]).read_bytes())
        if argument.startswith("optim.groups=") and ".py:" in argument:
            whole.update((ROOT / (argument.split("=")[1].split(".py:")[0] + ".py")).read_bytes())
    for file in dict.fromkeys((one.config, "transformer_pp/small.py")):
        whole.update((ROOT / "configs" / file).read_bytes())
    return whole.hexdigest()[:10]


def entry_of(
    one: Contestant, times: dict[str, StepTime], minutes: float, kind: str, corpus: str, seed: int
) -> Entry:
    """Return the run of a model for a budget; two kinds with equal steps are one run."""
    return Entry(corpus, one.name, steps_of(one, times, minutes, kind), seed, digest_of(one))


def finished(path: Path) -> dict[Entry, Result]:
    """Return the results of a file of JSON lines; an unfinished last line is left out."""
    found = {}
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    for line in lines:
        fields = json.loads(line)
        entry = Entry(**fields.pop("entry"))
        found[entry] = Result(entry=entry, **fields)
    return found


def append(path: Path, results: Iterable[Result]) -> None:
    """Append results as JSON lines, after the last whole line."""
    if path.exists():
        whole = path.read_bytes().rpartition(b"\n")
        path.write_bytes(whole[0] + whole[1])
    with path.open("a") as file:
        for result in results:
            file.write(json.dumps(asdict(result)) + "\n")
