"""Fuzz targets for the files of a run: manifest, JSON, metrics; and for YAML configs."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path

from checked import require
from mutation import change_json

from mudd_core.base.errors import FormatError, UserError
from mudd_core.run.store.run_folder import RunFolder


def run_manifest(data: bytes, folder: Path) -> None:
    """Check that a manifest.json survives a round trip: read, written and read again."""
    from mudd_core.checkpoint.manifest import encode
    from mudd_core.checkpoint.manifest_reader import decode

    manifest = decode(data, str(folder))
    try:
        again = encode(manifest)
    except ValueError:  # numbers of the state beyond JSON
        return
    require(decode(again, str(folder)) == manifest, "a manifest that is written again reads the same")


def seal_manifest(data: bytes) -> bytes:
    """Return the manifest with a valid checksum as its last key."""
    from mudd_core import _core

    head = data.rpartition(b',\n "manifest_crc32c"')[0] or data.rstrip().removesuffix(b"}").rstrip()
    if b"manifest_crc32c" in head[-60:]:
        head = head.rpartition(b",")[0]
    return head + f',\n "manifest_crc32c": "{_core.crc32c(head):08x}"\n}}\n'.encode()


def run_json(data: bytes, folder: Path) -> None:
    """Read the JSON files of a work directory: config.json, run.json, summary.json."""
    from mudd_core.config import Config, check_config
    from mudd_core.run.store.json_files import read_saved_config
    from mudd_core.run.store.run_store import RunStore

    run = folder / "run"
    run.mkdir(exist_ok=True)
    for name in ("config.json", "run.json", "summary.json"):
        (run / name).write_bytes(data)
    store = RunStore(RunFolder(run))
    store.config = Config()
    try:
        for ask in (store.saved_facts, store.summary):
            with contextlib.suppress(FormatError, UserError):
                ask()
        check_config(read_saved_config(RunFolder(run)))
    finally:
        store.close()


def run_metrics(data: bytes, folder: Path) -> None:
    """Read a metrics.jsonl, and truncate it to a step as a resume does."""
    from mudd_core.run.store.log_files import MetricsLog
    from mudd_core.run.store.metrics import read_rows

    file = folder / "metrics.jsonl"
    file.write_bytes(data)
    rows = list(read_rows(file))
    MetricsLog(file, resumed_step=5).close()
    kept = [row for row in rows if row["step"] <= 5]
    require(len(list(read_rows(file))) == len(kept), "a resume keeps the rows up to its step")


def run_provenance(data: bytes, folder: Path) -> None:
    """Read a statement about an export, and compare the folder with it."""
    from mudd_core.provenance.check import Findings, check_files
    from mudd_core.provenance.statement import NAME, read_statement

    place = folder / "export"
    place.mkdir(exist_ok=True)
    for name in ("model.safetensors", "config.json"):
        (place / name).write_bytes(b"")
    (place / NAME).write_bytes(data)
    found = Findings()
    check_files(read_statement(place / NAME), found)
    require(bool(found.differs or found.shown), "a comparison shows something or finds a difference")


def run_record(data: bytes, folder: Path) -> None:
    """Read the record of a step, and compare it with itself."""
    from mudd_core.fingerprint import StepRecord, first_difference

    file = folder / "record.jsonl"
    file.write_bytes(data)
    record = StepRecord.read(file)
    if record.lines:
        require(first_difference(record, record) is None, "a record equals itself")
    again = StepRecord.read(record.write(folder / "again.jsonl"))
    require(first_difference(record, again) is None if record.lines else True, "a record survives its file")


def change_lines(data: bytes, other: bytes, draw: random.Random) -> bytes:
    """Mutate the JSON tree of one line."""
    lines = data.split(b"\n")
    at = draw.randrange(len(lines))
    lines[at] = change_json(lines[at], draw.choice(other.split(b"\n")), draw)
    return b"\n".join(lines) + b"\n" * draw.randrange(2)


def run_yaml(data: bytes, folder: Path) -> None:
    """Read a YAML config file: all keys are strings or numbers, and there are no cycles."""
    from mudd_core.base.bounded_yaml import read_yaml

    (folder / "config.yaml").write_bytes(data)
    value, _ = read_yaml("fuzz", folder / "config.yaml")
    json.dumps(value, default=str)  # ValueError for a value that contains itself
