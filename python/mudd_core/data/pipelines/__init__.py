"""Pipelines: how documents or records become rows. `data.pipeline` names one; each is a module here.

`prepare` gives the data of a run, `parts_of` the inputs that its rows have beside inputs and targets.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable
from types import ModuleType

from mudd_core.base.errors import UserError
from mudd_core.config import Config
from mudd_core.config.data import IDS_ALONE, DataConfig
from mudd_core.data.access import Access
from mudd_core.data.corpus import Progress
from mudd_core.data.hub_datasets import with_test
from mudd_core.data.pipelines import (
    blocks,
    document_rows,
    features,
    megatron,
    own,
    pack,
    pile,
    synthetic,
    text,
)
from mudd_core.data.pipelines.documents_data import Preparation
from mudd_core.data.pipelines.own import register
from mudd_core.data.pipelines.pipeline import PARTS, Prepared, Rows, RowShape, Tested
from mudd_core.data.reach import within_reach

__all__ = [
    "PARTS",
    "Prepared",
    "RowShape",
    "Rows",
    "parts_of",
    "prepare",
    "reads_ids",
    "register",
    "test_rows",
]

# Each module has PARTS, of its rows, and prepare(config, how).
_PIPELINES: dict[str, ModuleType] = {
    "text": text,
    "pile": pile,
    "megatron": megatron,
    "pack": pack,
    "rows": document_rows,
    "features": features,
    "blocks": blocks,
    "synthetic": synthetic,
}


def parts_of(settings: DataConfig) -> tuple[str, ...]:
    """The parts of the rows of a pipeline; of a reader of the user's, which its first item decides."""
    if settings.pipeline in _PIPELINES:
        parts: tuple[str, ...] = _PIPELINES[settings.pipeline].PARTS
        return parts
    return pack.PARTS if own.gives_text(settings, _reader(settings)) else ()


def reads_ids(settings: DataConfig) -> bool:
    """Whether a pipeline gives ready ids, so that the model's vocabulary may be of any size from 2 on."""
    if settings.pipeline in _PIPELINES:
        return settings.pipeline in IDS_ALONE
    return not own.gives_text(settings, _reader(settings))


def prepare(
    config: Config,
    *,
    fingerprint: str | None = None,
    progress: Progress | None = None,
    before_build: Callable[[], None] | None = None,
) -> Prepared:
    """The data of a config, with a token cache built where the pipeline needs one and has none.

    fingerprint: of the data that a run was started with; UserError if they are gone. progress: called with (phase,
    done, total); default is the terminal. before_build: called before text is read for a new cache; it may raise.
    """
    config = within_reach(config, fingerprint)
    how = Preparation(fingerprint, progress, before_build)
    if config.data.pipeline in _PIPELINES:
        made: Prepared = _PIPELINES[config.data.pipeline].prepare(config, how)
        return made
    return own.prepare(config, how, _reader(config.data))


def test_rows(config: Config, text: Prepared, shape: RowShape) -> Rows:
    """The rows for a test: of the test split of data.dataset, or behind those for validation; UserError without."""
    if not isinstance(text, Tested):
        raise UserError(
            f"[data.pipeline] --split=test: expected data.pipeline=rows, which alone has a test split, got "
            f"{config.data.pipeline}; measure on the validation split, or start a run with data.eval_path=FILES"
        )
    given = with_test(config.data, Access.of(config, again=True)) if config.data.dataset else None
    if given is None:
        return text.test_rows(shape)
    if given.tokenizer == "bpe":
        assert isinstance(text, document_rows.RowsData)
        given = dataclasses.replace(given, tokenizer=str(text.cache.path / "tokenizer.json"))
    given = dataclasses.replace(given, cache="stream")  # so that the training files are not tokenized for it
    train = dataclasses.replace(config.train, epochs=0)
    return prepare(dataclasses.replace(config, data=given, train=train)).rows("valid", shape)


def _reader(settings: DataConfig) -> own.Reader:
    reader = own.find_reader(settings.pipeline)
    if reader is None:
        near = difflib.get_close_matches(settings.pipeline, _PIPELINES, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(
            f"[data.pipeline] expected {', '.join(_PIPELINES)}, FILE.py:NAME or a registered name, got "
            f"{settings.pipeline!r}{hint}"
        )
    return reader
