"""Pipelines: how documents or records become rows. `data.pipeline` names one; each is a module here.

`prepare` gives the data of a run, `parts_of` the inputs that its rows have beside inputs and targets.
"""

from __future__ import annotations

from collections.abc import Callable

from mudd_core.base.errors import UserError
from mudd_core.config import Config
from mudd_core.config.data import DataConfig
from mudd_core.data.access import Access
from mudd_core.data.corpus import Progress
from mudd_core.data.loader import prepare as prepare_text
from mudd_core.data.pipelines.pipeline import PARTS, Prepared, Rows, RowShape
from mudd_core.data.pipelines.text import TextData
from mudd_core.data.reach import within_reach

__all__ = ["PARTS", "Prepared", "RowShape", "Rows", "parts_of", "prepare"]


def parts_of(settings: DataConfig) -> tuple[str, ...]:
    """The parts of the rows of a pipeline, known before its data are read."""
    return _PARTS_OF.get(settings.pipeline, ())


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
    settings = config.data
    if settings.pipeline != "text":
        raise UserError(f"[data.pipeline] {settings.pipeline!r} is not built yet; take text")
    return TextData(
        prepare_text(
            settings,
            fingerprint=fingerprint,
            progress=progress,
            before_build=before_build,
            access=Access.of(config),
        )
    )


_PARTS_OF: dict[str, tuple[str, ...]] = {}
