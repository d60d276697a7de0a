"""Fuzz targets for the Python readers: each reads bytes, and returns or raises only a documented error."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mutation import change_bytes, change_json

from mudd_core.base.errors import FormatError, UserError
from mudd_core.run.store.run_folder import RunFolder

Change = Callable[[bytes, bytes, random.Random], bytes]


@dataclass(frozen=True)
class Target:
    """A fuzz target. run may raise only `refusals`; repair updates the checksums of a mutated input."""

    run: Callable[[bytes, Path], None]
    change: Change = change_json
    refusals: tuple[type[Exception], ...] = (FormatError, UserError)
    repair: Callable[[bytes], bytes] | None = None


def require(holds: bool, what: str) -> None:
    """Raise AssertionError if the condition is false, also under -O."""
    if not holds:
        raise AssertionError(what)


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


def run_tokenizer(data: bytes, _folder: Path) -> None:
    """Check a tokenizer.json; load it with the library if its form needs no trial process."""
    from mudd_core.data.tokenizers.tokenizer import JsonTokenizer
    from mudd_core.data.tokenizers.trial import has_own_form

    tokenizer = JsonTokenizer(data, "tokenizer.json")
    require(0 <= tokenizer.eos_id < tokenizer.vocab_size, "the end of a document is in the vocabulary")
    if has_own_form(json.loads(data)):
        ids = tokenizer.encode("the river é\n\t x_1 = 2 " + data[:200].decode("utf-8", "ignore"))
        require(all(0 <= i < tokenizer.vocab_size for i in ids), "ids are in the vocabulary")
        tokenizer.decode(range(min(tokenizer.vocab_size, 1000)))


def run_tokenizer_folder(data: bytes, folder: Path) -> None:
    """Read vocab.json, merges.txt, added_tokens.json and tokenizer_config.json, given as keys of one JSON object."""
    from mudd_core.data.tokenizers.source import find_tokenizer, stored_tokenizer

    try:
        members = {str(name): json.dumps(value) for name, value in json.loads(data).items()}
        members["merges.txt"] = "\n".join(json.loads(members.get("merges.txt", "[]")))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return
    made = folder / "tokenizer"
    made.mkdir(exist_ok=True)
    for name in ("vocab.json", "merges.txt", "added_tokens.json", "tokenizer_config.json"):
        (made / name).unlink(missing_ok=True)
        if name in members:
            (made / name).write_bytes(members[name].encode("utf-8", "surrogatepass"))
    source = find_tokenizer(str(made), 0)
    tokenizer = stored_tokenizer(source.identity, source.data, source.file)
    for number in (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id):
        require(number is None or 0 <= number < tokenizer.vocab_size, "its ids are in the vocabulary")


def run_sentencepiece(data: bytes, _folder: Path) -> None:
    """Check a tokenizer.model: if its library loads it, ids are in the vocabulary and decode to text.

    The reader of its pieces finds as many as the library, or raises FormatError.
    """
    from mudd_core.data.tokenizers.sentencepiece import SentencePieceTokenizer
    from mudd_core.data.tokenizers.sentencepiece_proto import read_model

    pieces = None
    with contextlib.suppress(FormatError):
        pieces = len(read_model(data, "tokenizer.model").pieces)
    tokenizer = SentencePieceTokenizer(data, "tokenizer.model")
    require(pieces in (None, tokenizer.vocab_size), "both readers find the same number of pieces")
    ids = tokenizer.encode("the river é\n\t x_1 = 2")
    require(all(0 <= i < tokenizer.vocab_size for i in ids), "ids are in the vocabulary")
    tokenizer.decode(range(min(tokenizer.vocab_size, 500)))


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


def run_settings(data: bytes, _folder: Path) -> None:
    """Compare the settings of an original program with the shapes of its weights; stop before memory is allocated."""
    from mudd_core import interop

    try:
        given = json.loads(data)
        page = importlib.import_module(f"mudd_core.interop.{given['system']}").SYSTEM
        settings = dict(given["settings"])
        arrays = {str(name): np.broadcast_to(np.float32(0), shape) for name, shape in given["shapes"].items()}
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, ImportError):
        return  # not a file of settings
    if hasattr(page, "reading"):
        page, arrays = page.reading(settings, arrays)
    config = interop._model_config(page, settings, arrays)
    for name, shape in itertools.islice(page.shapes(config, settings).items(), 1000):
        if name in arrays and arrays[name].shape == tuple(shape):
            continue


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


def change_lines(data: bytes, other: bytes, draw: random.Random) -> bytes:
    """Mutate the JSON tree of one line."""
    lines = data.split(b"\n")
    at = draw.randrange(len(lines))
    lines[at] = change_json(lines[at], draw.choice(other.split(b"\n")), draw)
    return b"\n".join(lines) + b"\n" * draw.randrange(2)


def run_batch(data: bytes, _folder: Path) -> None:
    """Pass a batch of user arrays of any shape, dtype, stride and order, described by JSON."""
    from mudd_core.config import TransformerPPConfig
    from mudd_core.engine.batch_check import checked_batch

    try:
        described = json.loads(data)
        batch = {name: _array(one) for name, one in described.items()}
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, MemoryError):
        return
    config = TransformerPPConfig(vocab_size=50, max_seq_len=16, d_model=16, n_layer=1, n_head=2, d_ff=32)
    arrays, optional = checked_batch(batch, config)
    for name, array in arrays.items():
        require(array.dtype == np.int32 and array.flags.c_contiguous, "arrays are int32 and contiguous")
        require(array.shape == arrays["inputs"].shape, "arrays are of one shape")
        require(name == "targets" or name in optional or int(array.min()) >= 0, "ids are in the vocabulary")
        require(name in optional or int(array.max()) < 50, "ids are in the vocabulary")


def _array(one: Any) -> Any:
    """Return the array of {"values", "dtype", "order", "to": broadcast shape, "slice": steps}; else the JSON itself."""
    if not isinstance(one, dict) or "values" not in one:
        return one
    array = np.array(one["values"], dtype=one.get("dtype"), order=one.get("order", "C"))
    if "to" in one:
        array = np.broadcast_to(array, one["to"])
    return array[tuple(slice(None, None, step) for step in one.get("slice", []))]


def run_weights(data: bytes, folder: Path) -> None:
    """Read a folder of safetensors whose index file has the given bytes."""
    from mudd_core.checkpoint import load_weights

    header = b'{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    (folder / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    (folder / "model.safetensors.index.json").write_bytes(data)
    with warnings.catch_warnings():  # the files were not written by mudd_core
        warnings.simplefilter("ignore")
        load_weights(folder)


def run_format(ending: str) -> Callable[[bytes, Path], None]:
    """Read all records of a file of this format. A NAME.idx has a NAME.bin of 64 bytes next to it."""

    def run(data: bytes, folder: Path) -> None:
        from mudd_core.data.formats import format_of

        file = folder / f"data.{ending}"
        file.write_bytes(data)
        if ending == "idx":
            file.with_suffix(".bin").write_bytes(bytes(64))
        for record in format_of(file).records(file, None):
            require(all(isinstance(name, str) for name in record), "columns have names")

    return run


def frame_again(data: bytes) -> bytes:
    """Return TFRecord frames with valid checksums, up to the first invalid length."""
    from mudd_core.base.framing import framed

    at, parts = 0, []
    while at + 16 <= len(data):
        length = min(int.from_bytes(data[at : at + 8], "little"), len(data) - at - 16)
        parts.append(framed(data[at + 12 : at + 12 + length]))
        at += 16 + length
    return b"".join(parts)


WRONG_VALUES = (ValueError, TypeError)  # errors of a caller's mistake; FormatError is not among them


def run_yaml(data: bytes, folder: Path) -> None:
    """Read a YAML config file: all keys are strings or numbers, and there are no cycles."""
    from mudd_core.base.bounded_yaml import read_yaml

    (folder / "config.yaml").write_bytes(data)
    value, _ = read_yaml("fuzz", folder / "config.yaml")
    json.dumps(value, default=str)  # ValueError for a value that contains itself


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


def run_gguf_tokenizer(data: bytes, _folder: Path) -> None:
    """Write the fields of a tokenizer.json in GGUF, or refuse it: one token for each id of the vocabulary."""
    from mudd_core.data.tokenizers.tokenizer import JsonTokenizer

    _write_vocabulary(JsonTokenizer(data, "tokenizer.json"))


def run_gguf_sentencepiece(data: bytes, _folder: Path) -> None:
    """Write the fields of a tokenizer.model in GGUF, or refuse it."""
    from mudd_core.data.tokenizers.sentencepiece import SentencePieceTokenizer

    _write_vocabulary(SentencePieceTokenizer(data, "tokenizer.model"))


def _write_vocabulary(tokenizer: Any) -> None:
    from mudd_core.interop.gguf.tokenizer import vocabulary_of

    found = vocabulary_of(tokenizer)
    require(len(found.pieces) == tokenizer.vocab_size, "a token for each id")
    encoded = found.fields(min(tokenizer.vocab_size + 3, 2000))
    require(all(isinstance(value, bytes) for value in encoded.values()), "encoded fields")


def run_adapter(data: bytes, folder: Path) -> None:
    """Read a folder of PEFT, given as its settings and its tensors of zeros: a shape by name."""
    from mudd_core.config import TransformerPPConfig
    from mudd_core.interop.peft_folder import read_adapter

    made = folder / "adapter"
    made.mkdir(exist_ok=True)
    try:
        given = json.loads(data)
        header, end = {}, 0
        for name, shape in given["tensors"].items():
            size = 4 * int(np.prod(shape, dtype=object))
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
            end += size
        if not 0 <= end <= 2**20:
            return
        text = json.dumps(header).encode()
        (made / "adapter_config.json").write_text(json.dumps(given["settings"]))
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        return  # no folder
    (made / "adapter_model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(end))
    config = TransformerPPConfig(vocab_size=50, max_seq_len=16, d_model=16, n_layer=2, n_head=2, d_ff=32)
    found = read_adapter(made, config, "fuzz")
    require(all(value.dtype == np.float32 for value in found.weights.values()), "weights are float32")
    require(found.lora.rank > 0 and bool(found.weights), "adapters have a rank and weights")


TARGETS = {
    "manifest": Target(run_manifest, repair=seal_manifest),
    "json": Target(run_json),
    "tokenizer": Target(run_tokenizer),
    "tokenizer_folder": Target(run_tokenizer_folder),
    "sentencepiece": Target(run_sentencepiece, change_bytes),
    "cache": Target(run_cache, change_bytes),
    "cache_fields": Target(run_cache_fields),
    "settings": Target(run_settings, refusals=(ValueError,)),
    "metrics": Target(run_metrics, change_lines),
    "batch": Target(run_batch, refusals=WRONG_VALUES),
    "weights": Target(run_weights),
    "jsonl": Target(run_format("jsonl"), change_lines),
    "tfrecord": Target(run_format("tfrecord"), change_bytes, repair=frame_again),
    "indexed": Target(run_format("idx"), change_bytes),
    "npy": Target(run_format("npy"), change_bytes),
    "arrow": Target(run_format("arrow"), change_bytes),
    "parquet": Target(run_format("parquet"), change_bytes),
    "arrayrecord": Target(run_format("arrayrecord"), change_bytes),
    "yaml": Target(run_yaml, change_bytes, refusals=(UserError,)),
    "teacher": Target(run_teacher, change_bytes),
    "teacher_fields": Target(run_teacher_fields),
    "gguf_tokenizer": Target(run_gguf_tokenizer, refusals=(ValueError, FormatError)),
    "gguf_sentencepiece": Target(run_gguf_sentencepiece, change_bytes, refusals=(ValueError, FormatError)),
    "adapter": Target(run_adapter),
}
