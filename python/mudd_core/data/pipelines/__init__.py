"""Pipelines: how documents or records become rows. `data.pipeline` names one; each is a module here.

config/pipelines.py lists them; a module is imported when its pipeline is first used. `prepare` gives the data of a run,
`parts_of` the inputs that its rows have beside inputs and targets.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Callable
from importlib import import_module

from mudd_core.base.errors import UserError
from mudd_core.config import Config
from mudd_core.config.data import DataConfig
from mudd_core.config.pipelines import PIPELINES
from mudd_core.data.pipelines import user_readers
from mudd_core.data.pipelines.document_data import DocumentData
from mudd_core.data.pipelines.user_readers import register
from mudd_core.data.rows import PARTS, Pipeline, Preparation, Prepared, Rows, RowShape, Tested
from mudd_core.data.sources.access import Access
from mudd_core.data.sources.corpus import Progress
from mudd_core.data.sources.hub_datasets import with_local_sources, with_test

__all__ = [
    "PARTS",
    "Prepared",
    "RowShape",
    "Rows",
    "parts_of",
    "pipeline_named",
    "plan_note",
    "prepare",
    "reads_ids",
    "register",
    "test_rows",
]


@functools.cache
def pipeline_named(name: str) -> Pipeline | None:
    """Return the pipeline of mudd_core of this name; None for others, which readers of users may have."""
    if name not in PIPELINES:
        return None
    found: Pipeline = import_module(f"{__name__}.{name}").PIPELINE
    return found


def parts_of(settings: DataConfig) -> tuple[str, ...]:
    """The parts of the rows of a pipeline; of a reader of the user's, which its first item decides."""
    one = pipeline_named(settings.pipeline)
    return user_readers.parts_of(settings, _reader(settings)) if one is None else one.parts


def reads_ids(settings: DataConfig) -> bool:
    """Whether a pipeline gives ready ids, so that the model's vocabulary may be of any size from 2 on."""
    if settings.pipeline in PIPELINES:
        return PIPELINES[settings.pipeline].ids_alone
    return not user_readers.gives_text(settings, _reader(settings))


def plan_note(config: Config, shape: RowShape) -> str:
    """Return the line of a plan on the files that a start writes for its pipeline; empty if it writes none."""
    one = pipeline_named(config.data.pipeline)
    return "" if one is None else one.plan_note(config, shape)


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
    config = with_local_sources(config, fingerprint)
    how = Preparation(fingerprint, progress, before_build)
    one = pipeline_named(config.data.pipeline)
    return (
        user_readers.prepare(config, how, _reader(config.data)) if one is None else one.prepare(config, how)
    )


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
        assert isinstance(text, DocumentData)
        given = dataclasses.replace(given, tokenizer=str(text.cache.path / "tokenizer.json"))
    given = dataclasses.replace(given, cache="stream")  # so that the training files are not tokenized for it
    train = dataclasses.replace(config.train, epochs=0)
    return prepare(dataclasses.replace(config, data=given, train=train)).rows("valid", shape)


def _reader(settings: DataConfig) -> user_readers.Reader:
    reader = user_readers.find_reader(settings.pipeline)
    if reader is None:
        near = difflib.get_close_matches(settings.pipeline, PIPELINES, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(
            f"[data.pipeline] expected {', '.join(PIPELINES)}, FILE.py:NAME or a registered name, got "
            f"{settings.pipeline!r}{hint}"
        )
    return reader
