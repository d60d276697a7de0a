"""README.md of an exported folder: the model, its base, its training and its results."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path

from mudd_core.base.surroundings import program
from mudd_core.config import Config
from mudd_core.config.fields import walk
from mudd_core.data.sources.access import local_root
from mudd_core.data.sources.notes import hashes_of
from mudd_core.run.build.base import BASE_FACT
from mudd_core.run.records.facts import DATA_FACT, data_fingerprint
from mudd_core.run.store.json_files import facts_of
from mudd_core.run.store.metrics import Row, rows_of
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.tune_arguments import TuneArguments, field_text

NAME = "README.md"
WRITTEN = "written by mudd_core."  # in the card of every export
_SECTIONS = ("tune", "lora", "optim", "train", "data", "loss")
# Fields with paths of this machine.
_PLACES = ("data.path", "data.tokenizer", "data.cache_dir", "data.eval_path", "lora.start_from")


def model_card(
    run: RunFolder, config: Config, step: int, base: str, words: Sequence[str], kind: str, library: str
) -> bytes:
    """Return the model card of a step's checkpoint.

    base: folder or name of the model that the run was tuned from, if any. `words`: the arguments of the export. kind:
    the end of the sentence `this folder is ...`. library: the program that loads the folder, as the hub names it.
    """
    name = Path(base).name
    rows = {
        "base": f"{name}{_fact(run, BASE_FACT, 'SHA-256 of its tensors')}" if base else "",
        "data": f"{Path(config.data.path).name}{_data_hash(run, config)}" if config.data.path else "",
        "recipe": " ".join(_recipe(config)),
        "steps": f"{step:,} of {config.train.steps:,}",
        "loss": _losses(run, step),
    }
    head = ["---", f"library_name: {library}", *([f"base_model: {base}"] if _is_of_hub(base) else []), "---"]
    table = ["| | |", "| --- | --- |", *(f"| {title} | {text} |" for title, text in rows.items() if text)]
    commands = [*_tuned(run, config, name), shlex.join([*program(), "export", *words])]
    text = [*head, f"# {config.name}", "", f"This folder is {kind}, {WRITTEN}", "", *table]
    return "\n".join([*text, "", *(f"    {line}" for line in commands), ""]).encode()


def _fact(run: RunFolder, fact: str, what: str) -> str:
    found = facts_of(run).get(fact)
    return f" ({what} {found})" if isinstance(found, str) and found else ""


def _data_hash(run: RunFolder, config: Config) -> str:
    """Return the SHA-256 of the conversations' file, like sha256sum; for several files, their cache's fingerprint."""
    hashes = hashes_of(local_root(config.data.cache_dir), f"chat-{data_fingerprint(facts_of(run))}")
    return f" (SHA-256 {hashes[0]})" if len(hashes) == 1 else _fact(run, DATA_FACT, "fingerprint")


def _recipe(config: Config) -> list[str]:
    """Return the training fields that differ from the defaults, as arguments."""
    usual = {info.path: info.value for info in walk(Config())}
    sections = tuple(f"{name}." for name in _SECTIONS)
    chosen = (
        (info.path, info.value)
        for info in walk(config)
        if info.path.startswith(sections) and info.path not in _PLACES and info.value != usual.get(info.path)
    )
    return [shlex.quote(f"{path}={field_text(value)}") for path, value in chosen]


def _losses(run: RunFolder, step: int) -> str:
    """Return the last training loss and the last validation loss up to a step.

    A run that was validated before its first update also has that loss.
    """
    rows = [row for row in rows_of(run) if row.get("step", 0) <= step]
    trained, held = _numbers(rows, "loss"), _numbers(rows, "val_loss")
    texts = [f"training {trained[-1]:.4f}"] if trained else []
    if held:
        before = _numbers([row for row in rows if row.get("step") == 0], "val_loss")
        texts.append(
            f"held-out {before[0]:.4f} before, {held[-1]:.4f} after"
            if before and len(held) > 1
            else f"held-out {held[-1]:.4f}"
        )
    return f"{'; '.join(texts)} (nats per target token)" if texts else ""


def _numbers(rows: Sequence[Row], name: str) -> list[float]:
    found = (row.get(name) for row in rows)
    return [float(one) for one in found if isinstance(one, int | float) and math.isfinite(one)]


def _tuned(run: RunFolder, config: Config, base: str) -> list[str]:
    """Return the `tune` command that repeats the run, if `tune` trained it in this folder."""
    # An average has the choices of its run, but no metrics, because nothing was trained in its folder.
    if not (run.asked_file.is_file() and run.metrics_file.is_file()):
        return []
    place = f"--workdir={run.path}"
    asked = TuneArguments.of(run) or TuneArguments(base, config.data.path, "", [])
    return [shlex.join([*program(), "tune", *asked.options, place, *asked.fields(run, config)])]


def _is_of_hub(base: str) -> bool:
    """Return whether a base is a hub name (owner/name) and not a local path."""
    return base.count("/") == 1 and not base.startswith((".", "~", "/")) and not Path(base).exists()
