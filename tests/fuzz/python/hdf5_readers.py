"""Fuzz targets for HDF5 files: token caches and teacher files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from checked import require


def run_cache(data: bytes, folder: Path) -> None:
    """Open a tokens.h5 through the HDF5 wrapper, and call every method of the opened cache."""
    from mudd_core.data.cache.token_cache import fingerprint_of

    _open_cache(data, folder / fingerprint_of("corpus", "bytes"))


def _open_cache(data: bytes, cache: Path) -> None:
    from mudd_core.data.cache.file import SPLITS
    from mudd_core.data.cache.token_cache import open_cache

    cache.mkdir(exist_ok=True)
    (cache / "tokens.h5").write_bytes(data)
    opened = open_cache(cache, sealed=False)
    for split in SPLITS:
        ids = opened.tokens(split)
        require(ids.size == 0 or int(ids.max()) < opened.vocab_size, "ids are in the vocabulary")
        opened.document_starts(split)


def run_cache_fields(data: bytes, folder: Path) -> None:
    """Open a cache whose attributes and arrays come from JSON: valid for HDF5, perhaps not as a cache."""
    from mudd_core import _h5
    from mudd_core.data.cache.file import seal_of
    from mudd_core.data.cache.token_cache import fingerprint_of

    file = folder / "made.h5"
    file.unlink(missing_ok=True)
    try:
        fields = json.loads(data)
        texts = fields["texts"]
        name = fingerprint_of(texts["corpus_hash"], texts["tokenizer"])
        with _h5.File.create(str(file)) as h5:
            for dataset, (kind, values) in fields["arrays"].items():
                array = np.array(values, dtype=kind)
                h5.create_dataset(dataset, array.dtype, array.size)
                h5.write(dataset, array)
            for attribute, number in fields["numbers"].items():
                h5.set_number(attribute, number)
            for attribute, text in {"fingerprint": name, **texts}.items():
                h5.set_text(attribute, text)
            if fields["sealed"]:
                h5.set_text("seal", seal_of(h5, str(file)))
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, RuntimeError):
        return  # HDF5 cannot store this file, or it cannot be sealed
    _open_cache(file.read_bytes(), folder / name)


def run_teacher(data: bytes, folder: Path) -> None:
    """Open a teacher file, and read all its blocks."""
    (folder / "teacher.h5").write_bytes(data)
    _read_teacher(folder / "teacher.h5")


def _read_teacher(file: Path) -> None:
    from mudd_core.data.cache.teacher_file import TeacherFile

    teacher = TeacherFile(file, "fuzz")
    kept = teacher.facts.kept
    for key in [*teacher.keys()]:
        block = teacher.block(key)
        require(
            block.ids.shape == block.log_probs.shape == (len(block.ids), kept), "k values for each target"
        )
        whole = (
            block.ids.size == 0
            or 0 <= int(block.ids.min()) <= int(block.ids.max()) < teacher.facts.vocab_size
        )
        require(whole, "ids are in the vocabulary")


def run_teacher_fields(data: bytes, folder: Path) -> None:
    """Open a teacher file whose attributes and arrays come from JSON: valid for HDF5, with a valid seal."""
    from mudd_core import _core, _h5
    from mudd_core.data.cache.teacher_file import FORMAT, Facts, _seal

    file = folder / "made.h5"
    file.unlink(missing_ok=True)
    try:
        fields = json.loads(data)
        facts, targets = Facts(**fields["facts"]), fields["targets"]
        ids, log_probs = np.array(fields["ids"], np.int32), np.array(fields["log_probs"], np.float32)
        table = []
        for a, b, first, count in fields["blocks"]:
            here = slice(first * facts.kept, (first + count) * facts.kept)
            table += [a, b, first, count, _core.crc32c(ids[here].tobytes() + log_probs[here].tobytes())]
        blocks = np.array(table, np.uint64)
        with _h5.File.create(str(file)) as h5:
            for name, array in (("ids", ids), ("log_probs", log_probs), ("blocks", blocks)):
                h5.create_dataset(name, array.dtype, array.size)
                h5.write(name, array.reshape(-1))
            for name, value in {**fields["facts"], "targets": targets, "format": FORMAT}.items():
                (h5.set_number if isinstance(value, int) else h5.set_text)(name, value)
            h5.set_text("seal", _seal(facts, targets, blocks.tobytes()))
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, RuntimeError):
        return  # HDF5 cannot store this file, or it cannot be sealed
    _read_teacher(file)
