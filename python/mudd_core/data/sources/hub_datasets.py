"""data.dataset: a folder, or a data set of the Hugging Face Hub that its libraries have stored on this machine.

`datasets` stores Arrow files that it has prepared; `hf download` stores the files of the repository. This module also
replaces the names and URLs of a config by paths of this machine.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from mudd_core.base.errors import UserError
from mudd_core.base.packages import needed
from mudd_core.base.paths import hub_cache, hub_place
from mudd_core.base.storage import is_url
from mudd_core.config import Config
from mudd_core.config.data import DataConfig
from mudd_core.config.fields import replace_path
from mudd_core.config.pipelines import spec_of
from mudd_core.data.sources import c4
from mudd_core.data.sources.access import Access, cache_root
from mudd_core.data.sources.hub_names import without_token

_SPLITS = {"train", "validation", "test"}
_OWNERS = {"c4": "allenai"}  # names whose owner the hub has changed
_CARD = re.compile(r"readme|licen[sc]e|\.git", re.IGNORECASE)  # files of a repository that are not data
_CONFIG_NAME = re.compile(r"^[-\s]*config_name:\s*[\"']?([^\"'\s#]+)", re.MULTILINE)
_FIELDS = ("path", "eval_path", "tokenizer")


def dataset_cache() -> Path:
    """Return the folder in which `datasets` stores prepared data: HF_DATASETS_CACHE, else below HF_HOME."""
    return Path(os.environ.get("HF_DATASETS_CACHE") or hub_cache().parent / "datasets").expanduser()


def is_here(name: str, variant: str) -> bool:
    """Return whether a data set is on this machine, without importing the library `datasets`."""
    return bool(_local(name) or _prepared(name, variant) or _snapshot(name))


def _local(name: str) -> Path | None:
    """Return the folder of this name; None if it does not exist, or if it is `c4` without a file of C4."""
    folder = Path(name).expanduser()
    if not folder.is_dir() or (name == "c4" and not c4.is_c4(folder)):
        return None
    return folder


def _snapshot(name: str) -> Path | None:
    """Return the folder in which `hf download` stores the newest files of a data set; None if there is none."""
    for known in _names(name):
        kept = hub_cache() / f"datasets--{known.replace('/', '--')}"
        try:
            folder = kept / "snapshots" / (kept / "refs" / "main").read_text().strip()
        except (OSError, ValueError):
            # A download of a specific revision writes no refs/main.
            folder = next(iter(sorted(kept.glob("snapshots/*"))), kept / "snapshots" / "none")
        if folder.is_dir() and any(not _CARD.match(at.name) for at in folder.iterdir()):
            return folder
    return None


def _names(name: str) -> tuple[str, ...]:
    return (name, f"{_OWNERS[name]}/{name}") if name in _OWNERS else (name,)


def _prepared(name: str, variant: str) -> str:
    """Return the name, perhaps with its owner, under which `datasets` has prepared a data set; empty if it has not."""
    folders = {known: dataset_cache() / known.replace("/", "___") for known in _names(name)}
    found = (
        known for known, at in folders.items() if any(at.glob(f"{variant or '*'}/*/*/dataset_info.json"))
    )
    return next(found, "")


def with_dataset(settings: DataConfig, access: Access) -> DataConfig:
    """Return the settings with the files of data.dataset in data.path, and its validation split in data.eval_path.

    data.eval_path is set only if it is empty and the data set has exactly the splits train, validation and test. Raise
    UserError with the places that were searched, and the command that fetches the data set.
    """
    if not settings.dataset:
        return settings
    if settings.path:
        raise UserError(f"[data.dataset] expected data.path or data.dataset, got both: {settings.path!r}")
    found = _found(settings, access)
    valid = (
        found.get("validation", "")
        if set(found) == _SPLITS and not spec_of(settings.pipeline).plain_text
        else ""
    )
    if settings.split not in found:
        raise UserError(
            f"[data.split] expected a split of {settings.dataset} ({', '.join(sorted(found))}), got '{settings.split}'"
        )
    return dataclasses.replace(
        settings, dataset="", path=found[settings.split], eval_path=settings.eval_path or valid
    )


def with_test(settings: DataConfig, access: Access) -> DataConfig | None:
    """Return the settings with the test split of data.dataset in data.eval_path; None without three splits."""
    found = _found(settings, access)
    if set(found) != _SPLITS:
        return None
    return with_dataset(dataclasses.replace(settings, eval_path=found["test"]), access)


def _found(settings: DataConfig, access: Access) -> dict[str, str]:
    """Return the files of each split, as paths.

    The order of preference is: a folder, data that `datasets` has prepared, and data that `hf download` has fetched.
    """
    name, variant = settings.dataset, settings.dataset_config
    if (folder := _local(name)) is not None:
        return _of_folder(folder, settings)
    if not access.online and not _prepared(name, variant) and (folder := _snapshot(name)) is not None:
        return _of_snapshot(folder, settings)
    return _of_hub(settings, access)


def _of_snapshot(folder: Path, settings: DataConfig) -> dict[str, str]:
    """Return the splits of a repository's files.

    Raise UserError if it has several data sets and the config chooses none.
    """
    variant = settings.dataset_config
    if variant and not (folder / variant).is_dir():
        raise UserError(
            f"[data.dataset_config] expected a folder of {settings.dataset} in {folder}, got '{variant}'; leave it "
            "out, or name the files in data.path"
        )
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    variants = {name for name in _CONFIG_NAME.findall(text) if (folder / name).is_dir()}
    if not variant and len(variants) > 1 and "default" not in variants:
        raise UserError(
            f"[data.dataset_config] expected one of {', '.join(sorted(variants))}, the data sets in "
            f"{settings.dataset}, got none"
        )
    return _of_folder(folder, settings)


def _of_folder(folder: Path, settings: DataConfig) -> dict[str, str]:
    """Return the splits of a folder, or of its subfolder data.dataset_config.

    A folder without splits is all `train`.
    """
    named = folder / settings.dataset_config
    folder = named if settings.dataset_config and named.is_dir() else folder
    splits = {name: str(folder / name) for name in (*_SPLITS, settings.split) if (folder / name).is_dir()}
    return splits or {settings.split: str(folder)}


def _of_hub(settings: DataConfig, access: Access) -> dict[str, str]:
    library = needed("datasets", "[data.dataset]", f"to look up {settings.dataset}")
    cache = dataset_cache()
    try:
        with _offline(library, not access.online):
            name = _prepared(settings.dataset, settings.dataset_config) or settings.dataset
            builder = library.load_dataset_builder(
                name, settings.dataset_config or None, cache_dir=str(cache)
            )
            if access.online:
                builder.download_and_prepare()
            whole = builder.as_dataset()
    except Exception as error:  # the library, the network and the hub raise many types
        name = f"{settings.dataset} {settings.dataset_config}".strip()
        reason = without_token(str(error))[:200]
        if access.online:
            raise UserError(
                f"[data.dataset] '{name}' is not on this machine and cannot be fetched from the hub: {reason}"
            ) from None
        arguments = ", ".join(repr(word) for word in (settings.dataset, settings.dataset_config) if word)
        raise UserError(
            f"[data.dataset] expected a folder or a data set of the hub that is on this machine, got '{name}': neither "
            f"the folder {Path(settings.dataset).absolute()} nor {hub_place()} has it ({reason}). If there is a "
            f'network, `python -c "import datasets; datasets.load_dataset({arguments})"` or `hf download '
            f"{_names(settings.dataset)[-1]} --repo-type dataset` fetches it; copy HF_HOME here, or set "
            "hub.online=true"
        ) from None
    return {
        str(split): ",".join(entry["filename"] for entry in part.cache_files) for split, part in whole.items()
    }


@contextmanager
def _offline(library: ModuleType, wanted: bool) -> Iterator[None]:
    """Keep the library off the network, and hide its progress bars, inside the `with` block."""
    import huggingface_hub.constants as constants

    before = (constants.HF_HUB_OFFLINE, library.config.HF_HUB_OFFLINE)
    level = library.logging.get_verbosity()
    if wanted:
        constants.HF_HUB_OFFLINE = library.config.HF_HUB_OFFLINE = True
        library.logging.set_verbosity_error()
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, library.config.HF_HUB_OFFLINE = before
        library.logging.set_verbosity(level)


def with_local_sources(config: Config, fingerprint: str | None = None) -> Config:
    """Return the config with local paths; raise UserError if something is not on this machine and cannot be fetched.

    fingerprint: identifies the data that a run was started with. If its token cache exists, the sources are not needed.
    Copies of sources are then used without a check.
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
