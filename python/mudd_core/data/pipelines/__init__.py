"""Pipelines, which turn documents or records into sequences. `data.pipeline` names one; each is a module here.

config/pipelines.py lists them; a module is imported when its pipeline is first used. `prepare` returns the data of a
run, `parts_of` the names of the arrays in addition to inputs and targets.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from mudd_core.data.pipelines.cache_plan import CacheToBuild
    from mudd_core.data.pipelines.mixture.ends import Sized

__all__ = [
    "PARTS",
    "Prepared",
    "RowShape",
    "Rows",
    "cache_to_build",
    "parts_of",
    "pipeline_named",
    "plan_note",
    "prepare",
    "reads_ids",
    "register",
    "sizes_before_start",
    "test_rows",
]


@functools.cache
def pipeline_named(name: str) -> Pipeline | None:
    """Return mudd_core's pipeline of this name; None for other names, which a user's reader may have."""
    if name not in PIPELINES:
        return None
    found: Pipeline = import_module(f"{__name__}.{name}").PIPELINE
    return found


def parts_of(settings: DataConfig) -> tuple[str, ...]:
    """Return the names of the further arrays of a pipeline; for a user's reader its first item decides."""
    one = pipeline_named(settings.pipeline)
    return user_readers.parts_of(settings, _reader(settings)) if one is None else one.parts


def reads_ids(settings: DataConfig) -> bool:
    """Return whether a pipeline reads ready ids, so that the model's vocabulary may have any size from 2."""
    if settings.pipeline in PIPELINES:
        return PIPELINES[settings.pipeline].ids_alone
    return not user_readers.gives_text(settings, _reader(settings))


def plan_note(config: Config, shape: RowShape) -> str:
    """Return the line of a plan about the files that a start writes for its pipeline; empty if it writes none."""
    one = pipeline_named(config.data.pipeline)
    return "" if one is None else one.plan_note(config, shape)


def prepare(
    config: Config,
    *,
    fingerprint: str | None = None,
    progress: Progress | None = None,
    before_build: Callable[[], None] | None = None,
) -> Prepared:
    """Return the data of a config; build a token cache if the pipeline needs one and has none.

    fingerprint: identifies the data that a run was started with; raise UserError if they are gone. progress: called
    with (phase, done, total); the default prints to the terminal. before_build: called before text is read for a new
    cache; it may raise.
    """
    how = Preparation(fingerprint, progress, before_build)
    if config.data.mix:
        from mudd_core.data.pipelines.mixture.data import prepare as prepare_mixture

        return prepare_mixture(config, how, _prepare_one)
    return _prepare_one(config, how)


def cache_to_build(config: Config) -> CacheToBuild:
    """Estimate the token caches that a start would build from plain text, and count the ones that exist.

    Raise UserError if a start would refuse a source of data.mix.
    """
    from mudd_core.data.pipelines.cache_plan import cache_to_build as estimate

    return estimate(config, _prepare_one)


def sizes_before_start(config: Config, shape: RowShape) -> Sequence[Sized | None]:
    """Return the sequences of each source of data.mix without building a cache; None for an unknown number.

    Raise UserError if a start could not read a source.
    """
    from mudd_core.data.pipelines.mixture.sizes import sizes_before_start as sizes

    return sizes(config, shape, _prepare_one)


def _prepare_one(config: Config, how: Preparation) -> Prepared:
    """Return the data of a config without a mixture."""
    config = with_local_sources(config, how.fingerprint)
    one = pipeline_named(config.data.pipeline)
    return (
        user_readers.prepare(config, how, _reader(config.data)) if one is None else one.prepare(config, how)
    )


def test_rows(config: Config, text: Prepared, shape: RowShape) -> Rows:
    """Return the sequences for a test: the test split of data.dataset, or the ones after the validation split.

    Raise UserError if there are none.
    """
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
    # With cache="stream" a test does not tokenize the training files.
    given = dataclasses.replace(given, cache="stream")
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
