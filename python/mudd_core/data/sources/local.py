"""The data of a config with their names and URLs replaced by paths of this machine."""

from __future__ import annotations

import dataclasses

from mudd_core.base.storage import is_url
from mudd_core.config import Config
from mudd_core.config.fields import replace_path
from mudd_core.config.pipelines import spec_of
from mudd_core.data.sources.access import Access, cache_root
from mudd_core.data.sources.hub_datasets import with_dataset

_FIELDS = ("path", "eval_path", "tokenizer")


def with_local_sources(config: Config, fingerprint: str | None = None) -> Config:
    """The config to read data by; UserError where something is not on this machine and may not or cannot be fetched.

    fingerprint: of the data that a run was started with. Its token cache needs no source, so nothing is looked for
    where that is there; copies of sources are taken as they are.
    """
    if is_url(config.data.cache_dir):
        config = replace_path(config, "data.cache_dir", str(cache_root(config)))
    data = config.data
    if not data.dataset and not any("://" in getattr(data, name) for name in _FIELDS):
        return config
    access = Access.of(config, again=fingerprint is not None)
    if spec_of(data.pipeline).plain_text and fingerprint is not None and (access.root / fingerprint).is_dir():
        return config
    data = with_dataset(data, access)
    path, eval_path, tokenizer = (access.local(getattr(data, name), f"[data.{name}]") for name in _FIELDS)
    data = dataclasses.replace(data, path=path, eval_path=eval_path, tokenizer=tokenizer)
    return dataclasses.replace(config, data=data)
