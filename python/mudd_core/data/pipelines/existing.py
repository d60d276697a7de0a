"""Data whose token cache exists. A plan reads it in place of a start, so nothing is built or fetched."""

from __future__ import annotations

from mudd_core.base.storage import is_url
from mudd_core.config import Config
from mudd_core.config.data import DataConfig
from mudd_core.data.rows import Preparation, Prepared, PrepareOne


class NoCacheError(Exception):
    """The signal that a start would read text for a new cache."""


def without_build() -> Preparation:
    """Return a preparation that prints nothing and raises NoCacheError instead of building a cache."""

    def refuse() -> None:
        raise NoCacheError

    return Preparation(None, lambda *_: None, refuse)


def is_here(data: DataConfig) -> bool:
    """Return whether a source needs no network."""
    return not data.dataset and not any(map(is_url, (data.path, data.eval_path, data.tokenizer)))


def existing_data(config: Config, prepare_one: PrepareOne) -> Prepared | None:
    """Return the data of a config without a mixture; None if a start would read its text or fetch its files.

    Raise UserError if the data cannot be read.
    """
    if not is_here(config.data):
        return None
    try:
        return prepare_one(config, without_build())
    except NoCacheError:
        return None
