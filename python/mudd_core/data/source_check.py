"""A check that the data of a config exist and are text, without fetching them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from mudd_core.base.errors import UserError
from mudd_core.base.storage import file_system, is_url, mapped, unreachable
from mudd_core.config import Config
from mudd_core.config.data import DataConfig, DocumentRule
from mudd_core.config.mix_sources import source_config, source_names
from mudd_core.config.pipelines import spec_of
from mudd_core.data.chat.build import require_conversation
from mudd_core.data.formats import documents, format_of
from mudd_core.data.pipelines.mixture.names import naming
from mudd_core.data.pipelines.text import in_records
from mudd_core.data.sources.boundaries import require_text, rule_named
from mudd_core.data.sources.corpus import scan_listing
from mudd_core.data.sources.listing import Listing, list_files
from mudd_core.data.sources.splits import chosen_files

_READ_BYTES = 256 << 20


def check_sources(config: Config) -> None:
    """Raise UserError if data.path or data.eval_path names nothing, or a URL that cannot be reached.

    For a mixture, check each source.
    """
    for name in source_names(config):
        with naming(name):
            check_sources(source_config(config, name))
    if config.data.mix:
        return
    data = config.data
    names: tuple[Literal["path"], Literal["eval_path"]] = ("path", "eval_path")
    for name in names:
        path = mapped(getattr(data, name), config.storage.map)
        if is_url(path):
            _look_at(path, f"[data.{name}]")
        elif name == "path" and spec_of(data.pipeline).plain_text and not in_records(data):
            _read_text(list_files(path), rule_named(data.document))
        elif path:
            _read_first(chosen_files(data, name, path).files, data, pairs=config.loss.of_pairs)


def _read_text(listing: Listing, rule: DocumentRule) -> None:
    """Raise UserError if a start would reject the text. Read at most _READ_BYTES bytes."""
    if sum(file.size for file in listing.files) <= _READ_BYTES:
        scan_listing(listing, rule=rule)
    elif listing.kind == "file":
        require_text(Path(os.fsdecode(listing.path_of(listing.files[0]))), _READ_BYTES)


def _read_first(files: tuple[Path, ...], settings: DataConfig, *, pairs: bool) -> None:
    """Raise UserError or FormatError if the first document of the files cannot be read."""
    one = format_of(files[0], settings.format)
    if spec_of(settings.pipeline).conversations:
        require_conversation(files[0], one, settings.column, pairs=pairs)
        return
    if spec_of(settings.pipeline).ids_alone or one.holds == "ids":
        return
    if one.holds == "text" and len(files) == 1:
        require_text(files[0], _READ_BYTES)
    else:
        next(documents(files[0], settings.column, settings.format), None)


def _look_at(url: str, argument: str) -> None:
    system, path = file_system(url, argument)
    try:
        there = bool(system.glob(path, detail=True)) if "*" in path else system.exists(path)
    except Exception as error:
        raise unreachable(url, argument, error) from error
    if not there:
        raise UserError(f"{argument} expected a file or a folder, got '{url}', which does not exist")
