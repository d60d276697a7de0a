"""The source of a run's config: arguments and files. A resume with the same command then does not run the files again.

A config file may register data readers and URL schemes when it runs; later commands then need that file.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import shlex
import sys
import sysconfig
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import mudd_core
from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.types import JsonObject
from mudd_core.config import FAMILIES, Config, find_config
from mudd_core.config.load import run_for_effect
from mudd_core.config.own_files import files_read
from mudd_core.config.own_optimizers import own_optimizers
from mudd_core.run.store.own_code import run_copies
from mudd_core.run.store.run_folder import RunFolder

MEMBER = "config_source"  # key in run.json


@dataclass
class ConfigSource:
    """The overrides, and the SHA-256 by path of the config file (first) and of the files that it read or imported.

    registers: readers and schemes that exist only after the config file has run.
    """

    words: list[str]
    files: dict[str, str] = field(default_factory=dict)
    registers: list[str] = field(default_factory=list)

    @property
    def file(self) -> str:
        """The config file; empty if there is none."""
        return next(iter(self.files), "")

    def to_dict(self) -> JsonObject:
        """Return the entry for run.json."""
        return asdict(self)


def of_facts(facts: JsonObject) -> ConfigSource | None:
    """Return the source in run.json; None if it has none."""
    raw = facts.get(MEMBER)
    if not isinstance(raw, dict):
        return None
    words, files, names = raw.get("words"), raw.get("files"), raw.get("registers", [])
    if not (isinstance(words, list) and isinstance(files, dict) and isinstance(names, list)):
        return None
    texts = [word for word in words if isinstance(word, str)]
    if len(texts) != len(words):
        return None
    return ConfigSource(texts, {str(k): str(v) for k, v in files.items()}, list(map(str, names)))


@contextmanager
def recorded(words: Sequence[str]) -> Iterator[ConfigSource]:
    """Inside the block, record the files that are read as configs, and the user modules that they import."""
    source, modules = ConfigSource(list(words)), set(sys.modules)
    first, known = len(files_read), registrations()
    yield source
    source.registers = sorted(registrations() - known)
    paths = [*files_read[first:], *_own_modules(modules)]
    source.files = {str(path): _hash(path) for path in map(Path.resolve, paths)}


def _own_modules(before: set[str]) -> Iterator[Path]:
    """Yield the files of modules imported since then, except modules of Python, installed packages and mudd_core."""
    others = {*map(Path, sysconfig.get_paths().values()), Path(mudd_core.__file__).parent}
    for name in sys.modules.keys() - before:
        file = getattr(sys.modules[name], "__file__", None)
        installed = file is not None and {"site-packages", "dist-packages"}.intersection(Path(file).parts)
        if file is not None and not installed and not others.intersection(Path(file).parents):
            yield Path(file)


def _hash(path: Path) -> str:
    try:
        return hashlib.sha256(read_bytes(path)).hexdigest()
    except (OSError, UserError):
        return ""


def changed_file(saved: ConfigSource | None, now: ConfigSource | None) -> str:
    """Return the first file that has changed since the start of the run; empty if none has, or if it is unknown."""
    if saved is None or now is None:
        return ""
    return next((path for path, digest in now.files.items() if saved.files.get(path, digest) != digest), "")


def resumed(file: str, words: Sequence[str], run: RunFolder | None) -> tuple[Config, ConfigSource] | None:
    """Return saved config and source of the run that the same command started, if none of its files has changed.

    run: the folder of the run; None: the folder under runs/ that the files or arguments name.
    """
    from mudd_core.run.store.json_files import read_saved_config

    path = find_config(file).resolve()
    if path.suffix == ".json":
        return None
    others = (RunFolder(file.parent) for file in sorted(Path("runs").glob("*/run.json")))
    folders = others if run is None else (run,)
    found = [known for folder in folders if (known := _known(folder, path, words, named=run is not None))]
    if len(found) != 1:
        return None
    folder, source = found[0]
    try:
        run_copies(folder)
        config = read_saved_config(folder)
    except (FormatError, UserError):  # the files of the command run instead
        return None
    replay(path, source.registers)
    return config, source


def _known(
    folder: RunFolder, path: Path, words: Sequence[str], *, named: bool
) -> tuple[RunFolder, ConfigSource] | None:
    """Return the folder with its source, if the same command started its run; no code is run."""
    from mudd_core.run.store.json_files import read_facts, read_saved_config

    try:
        if not folder.has_identity or not folder.holds_run:
            return None
        source = of_facts(read_facts(folder))
        if source is None or source.words != list(words) or next(iter(source.files), "") != str(path):
            return None
        if any(not digest or _hash(Path(file)) != digest for file, digest in source.files.items()):
            return None
        config = read_saved_config(folder)
        if named:
            return folder, source
        # A computed name may change each time, so the file must run.
        texts = [*words, *(read_bytes(Path(file)).decode("utf-8", "replace") for file in source.files)]
        fits = config.name == folder.path.name and any(config.name in text for text in texts)
        return (folder, source) if fits else None
    except (FormatError, UserError, OSError):  # the command that opens the run reports the error
        return None


def registrations() -> set[str]:
    """Return the names of registered families, optimizers and readers, and of schemes that fsspec does not ship."""
    found = {f"family {name}" for name, one in FAMILIES.items() if one.given is not None and one.file is None}
    found |= {f"optimizer {one.name}" for one in own_optimizers() if one.file is None}
    if (readers := sys.modules.get("mudd_core.data.pipelines.user_readers")) is not None:
        found |= {f"reader {name}" for name in readers.registered()}
    if (schemes := sys.modules.get("fsspec.registry")) is not None:
        shipped = inspect.getsource(schemes)
        names = {*schemes.registry, *schemes.known_implementations}
        found |= {f"scheme {name}" for name in names if f'"{name}"' not in shipped}
    return found


def replay(file: Path, names: Collection[str]) -> None:
    """Run a config file of the command for its registrations, and ignore its config."""
    if not set(names) <= registrations():
        run_for_effect(file)


def require_registered(names: Collection[str], file: str) -> None:
    """Raise UserError, with the command to type, if the data need registrations of the run's config file."""
    if any(name.startswith("scheme ") for name in names):
        importlib.import_module("fsspec")  # registers the schemes of installed packages
    missing = sorted(set(names) - registrations())
    if missing:
        raise UserError(
            f"[config] --config: this run needs the code that {file} registers "
            f"({', '.join(missing)}), and a command runs only the files that its arguments name; add "
            f"--config={shlex.quote(file)}"
        )
