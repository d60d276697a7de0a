"""The name of a source in errors about its files."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from mudd_core.base.errors import UserError
from mudd_core.config.mix import MIX, OPTIONS, SOURCES

_FIELD = re.compile(rf"\bdata\.({'|'.join(OPTIONS)})\b")


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """Inside the block, name the source in errors: data.path becomes data.sources.NAME.path."""
    try:
        yield
    except UserError as error:
        text = _FIELD.sub(rf"{SOURCES}.{name}.\1", str(error))
        error.args = (text if text != str(error) else f"{text} (the source {name} of {MIX})",)
        raise
