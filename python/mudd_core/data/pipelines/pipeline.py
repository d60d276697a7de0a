"""What a pipeline is: one object that its module gives to the registry as PIPELINE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mudd_core.config import Config
from mudd_core.data.rows import Preparation, Prepared, RowShape


def _no_note(config: Config, shape: RowShape) -> str:
    return ""


@dataclass(frozen=True)
class Pipeline:
    """One pipeline; settings see its PipelineSpec of the same name.

    parts: what its rows have beside inputs and targets, in the order of data.rows.PARTS. prepare: gives the data of a
    config. plan_note: a line of a plan on the files that a start writes to the cache folder; empty if it writes none.
    """

    name: str
    parts: tuple[str, ...]
    prepare: Callable[[Config, Preparation], Prepared]
    plan_note: Callable[[Config, RowShape], str] = _no_note
