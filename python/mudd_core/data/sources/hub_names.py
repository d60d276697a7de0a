"""Names of the Hugging Face Hub: find the folder of a name on this machine, or fetch it if that is permitted."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.paths import hub_cache, hub_place
from mudd_core.data.sources.access import Access

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
# Short names that the hub has moved to an owner.
_OWNERS = {"gpt2": "openai-community", "distilgpt2": "distilbert", "t5": "google-t5", "bert": "google-bert"}


def is_hub_name(text: str) -> bool:
    """Return whether a string may be a hub name: NAME or OWNER/NAME, without a file's suffix."""
    return (
        bool(_NAME.fullmatch(text))
        and not text.endswith((".json", ".model", ".txt", ".gz"))
        and ".." not in text
    )


def _names(name: str) -> list[str]:
    owner = _OWNERS.get(name) or _OWNERS.get(name.partition("-")[0])
    return [name, f"{owner}/{name}"] if owner and "/" not in name else [name]


def hub_folder(name: str, files: Sequence[str], access: Access, argument: str, wanted: str) -> Path:
    """Return the folder that contains at least one of the files of a hub name.

    The search starts below HF_HOME; with hub.online the files are then fetched. Raise UserError with the places that
    were searched and the command that fetches the files. argument: the field, as `[place] name`. wanted: the other
    values that the field accepts.
    """
    from huggingface_hub import try_to_load_from_cache

    cache = hub_cache()
    for known in _names(name):
        for file in files:
            found = try_to_load_from_cache(known, file, cache_dir=cache)
            if isinstance(found, str):
                return Path(found).parent
    if access.online:
        return _fetched(name, files, cache, argument)
    raise UserError(
        f"{argument}: expected {wanted} or a name of the hub that is on this machine, got '{name}': neither the folder "
        f"{Path(name).absolute()} nor {hub_place()} has it. If there is a "
        f"network, fetch it with `hf download {_names(name)[-1]} {' '.join(files[:2])} --local-dir {name}` and copy "
        "that folder here; or set hub.online=true"
    )


def _fetched(name: str, files: Sequence[str], cache: Path, argument: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(_names(name)[-1], allow_patterns=list(files), cache_dir=cache))
    except Exception as error:  # the network and the hub raise many types
        raise UserError(
            f"{argument}: '{name}' cannot be fetched from the hub: {without_token(str(error))[:500]}"
        ) from None


def without_token(text: str) -> str:
    """Return the string without the value of HF_TOKEN, which must not be printed or saved."""
    token = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN")
    return text.replace(token, "***") if token else text
