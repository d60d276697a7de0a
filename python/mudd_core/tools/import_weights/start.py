"""The start of an imported run: its tokenizer and its first checkpoint.

The tokenizer comes from the folder, from --tokenizer, or from the config if its ids agree. The tensors of the
checkpoint are converted one at a time, when they are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.paths import IMPORTED, local
from mudd_core.checkpoint import StatePart
from mudd_core.checkpoint.stored import StoredTensor, float32_of
from mudd_core.config import Config
from mudd_core.config.fields import replace_path
from mudd_core.data.sources.access import Access
from mudd_core.data.tokenizers.source import find_tokenizer, needs_its_folder, read_tokenizer_json
from mudd_core.engine.engine import Engine
from mudd_core.engine.frozen import NARROW, frozen_types, is_exact, stored_as
from mudd_core.engine.model import Model
from mudd_core.run.build.start_tokenizer import SourceTokenizer, require_same_ids
from mudd_core.run.build.stored_types import header_types
from mudd_core.run.store.resumed_config import TRAINED


def with_tokenizer(
    config: Config, asked: str | None, source: Path, workdir: Path, *, is_base: bool, keeps_folder: bool
) -> tuple[Config, Path | None]:
    """Return the config of an import with its tokenizer, and the file to copy into the run.

    asked: the value of --tokenizer. source: the folder of the weights. is_base: the import is a part of `tune`.
    keeps_folder: the run keeps the tokenizer's files of that folder.
    """
    if config.data.tokenizer:
        _require_own_tokenizer(config, asked, source)
        return config, None
    file = _given_tokenizer(
        asked, source, config.model.vocab_size, is_base=is_base, keeps_folder=keeps_folder
    )
    name = str((workdir / "tokenizer.json").resolve()) if file else "bytes"
    if file is not None and keeps_folder and needs_its_folder(file):
        return replace_path(config, "data.tokenizer", str((workdir / IMPORTED).resolve())), None
    config = replace_path(config, "data.tokenizer", name)
    if file is None and not asked:  # its ids are bytes, so there is no file
        config = replace_path(config, "data.recipe_tokenizer", "")
    return config, file


def _given_tokenizer(
    asked: str | None, source: Path, vocab_size: int, *, is_base: bool, keeps_folder: bool
) -> Path | None:
    """Return the tokenizer.json of the weights, None for bytes; raise UserError if it is missing or too large.

    asked: the value of --tokenizer. is_base: the import is for `tune`, which has no such option. keeps_folder: as in
    with_tokenizer.
    """
    # The ids of another tokenizer would have no meaning for the model, so there is no default tokenizer.
    from mudd_core.data.tokenizers.tokenizer import ByteTokenizer, JsonTokenizer

    file = local(asked, "[import] --tokenizer") if asked else source / "tokenizer.json"
    if asked == "bytes" or (not asked and not file.is_file() and vocab_size == ByteTokenizer.vocab_size):
        name, size, found = "bytes", ByteTokenizer.vocab_size, None
    elif not asked and not file.is_file():
        written = f"AutoTokenizer.from_pretrained('{source}').save_pretrained('{source}') of transformers writes one"
        if is_base:
            raise UserError(f"[tune] --base: {source} has no tokenizer.json; {written}")
        raise UserError(
            f"[import] --tokenizer: {source} has no tokenizer.json; give --tokenizer=FILE, the tokenizer.json that the "
            f"model was trained with ({written}), or --tokenizer=bytes to train it on raw bytes"
        )
    elif file.suffix == ".model" and file.is_file():
        raise UserError(
            f"[import] --tokenizer: expected a tokenizer.json, got {file}, a model of sentencepiece or tiktoken; "
            f"AutoTokenizer.from_pretrained('{file.parent}').save_pretrained('{file.parent}') of transformers writes "
            f"its tokenizer.json; type then --tokenizer={file.with_name('tokenizer.json')}"
        )
    else:
        name, found = str(file), file
        in_folder = keeps_folder and needs_its_folder(file)
        data = read_tokenizer_json(name)
        size = (find_tokenizer(str(source), 0).make() if in_folder else JsonTokenizer(data, name)).vocab_size
    if size > vocab_size:
        raise UserError(
            f"[import] --tokenizer: expected at most the model's {vocab_size:,} ids, got {size:,} ({name})"
        )
    return found


def _require_own_tokenizer(config: Config, asked: str | None, source: Path) -> None:
    """Raise UserError if the arguments set a data.tokenizer with other ids than the tokenizer of the weights."""
    name = config.data.tokenizer
    file = str(local(asked, "[import] --tokenizer") if asked else source / "tokenizer.json")
    if asked != "bytes" and not Path(file).is_file():
        return  # there is nothing to compare with
    if name == TRAINED:
        raise UserError(
            f"[import] data.tokenizer: expected the tokenizer of the weights, {'bytes' if asked == 'bytes' else file}, "
            "got bpe, which would train a new vocabulary; leave data.tokenizer out"
        )
    place = asked and ("bytes" if asked == "bytes" else file)
    theirs = SourceTokenizer(find_tokenizer(place or str(source), 0), file, False)
    own = find_tokenizer(name, config.data.vocab_size, Access.of(config))
    require_same_ids(str(source), theirs, own, name)


def narrow_kind(source: Path) -> str:
    """Return the 16-bit type that all matrices in the files have, by safetensors name; empty if the types differ."""
    kinds = set(header_types(source).values())
    kind = kinds.pop() if len(kinds) == 1 else ""
    return kind if kind in NARROW else ""


def fits(tensor: StoredTensor, kind: str) -> bool:
    """Return True if the 16-bit type `kind` represents the converted values exactly.

    Raise an error if a value cannot be converted.
    """
    values = np.asarray(tensor)
    return bool(kind) and is_exact(values, kind)


def first_parts(
    config: Config, weights: Mapping[str, StoredTensor], found: Mapping[str, str]
) -> list[StatePart]:
    """Return the state to save, one tensor at a time, with frozen matrices in the types of train.frozen_dtype.

    found: the 16-bit type that represents a weight exactly, by name of the weight.
    """
    model = Model(config.model, booked_only=True)
    types = frozen_types(model.store, config, found, resumed=False)
    if types:
        model = Model(config.model, booked_only=True, stored=types)
    stored = {name: stored_as(model.store, name, weights[name]) for name in model.store.names()}
    inexact = [name for name, kind in types.items() if NARROW.get(found.get(name, "")) != kind]
    if rounded := sum(_changed(weights[name], stored[name]) for name in inexact):
        print(
            f"note: {rounded:,} frozen weights were rounded (train.frozen_dtype={config.train.frozen_dtype})"
        )
    return Engine(config, model).first_parts(stored)


def _changed(before: StoredTensor, after: StoredTensor) -> int:
    """Return the number of values that differ between two tensors."""
    return int(np.count_nonzero(np.asarray(before) != float32_of(after)))
