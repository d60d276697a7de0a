"""Config files: run the get_config() of one, and describe all of them."""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import mudd_core
from mudd_core.base.errors import UserError
from mudd_core.base.other_folders import require_no_other
from mudd_core.base.regular_files import read_text
from mudd_core.config.check import check_config, require_own_steps
from mudd_core.config.config_files import config_files, find_config
from mudd_core.config.overrides import apply_overrides, split_words
from mudd_core.config.own_files import files_read
from mudd_core.config.own_optimizers import run_named_optimizers
from mudd_core.config.replaced import Changes, with_changes
from mudd_core.config.run_config import Config
from mudd_core.config.saved import from_dict


def run_module(path: Path, known: Mapping[str, object] | None = None) -> ModuleType:
    """Run a Python file, and add it to the files that were read.

    known: names that it may use without importing them.
    """
    files_read.append(path)
    return _run_file(path, known)


def _run_file(path: Path, known: Mapping[str, object] | None = None) -> ModuleType:
    spec = importlib.util.spec_from_file_location("mudd_config_" + path.stem, path)
    if spec is None or spec.loader is None:
        raise UserError(f"[config] {path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    vars(module).update(known or {})
    with _failing_in(path):
        spec.loader.exec_module(module)
    return module


def _config_of(path: Path) -> object:
    """Return the result of a Python file's get_config()."""
    maker = getattr(_run_file(path), "get_config", None)
    if not callable(maker):
        raise UserError(f"[config] {path}: expected a function get_config()")
    with _failing_in(path):
        return maker()


@contextmanager
def _failing_in(path: Path) -> Iterator[None]:
    """Convert exceptions of a user's file to UserError; write no bytecode for it."""
    wrote = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # a config folder may be read-only, and edits must take effect at once
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"[config] {path} failed:\n{_told(error)}") from error
    finally:
        sys.dont_write_bytecode = wrote


def _told(error: BaseException) -> str:
    """Return an error, with the part of its traceback that is in the user's files."""
    ours = str(Path(mudd_core.__file__).parent)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((ours, "<frozen "))
    ]
    lines = [*traceback.StackSummary.from_list(frames).format(), *traceback.format_exception_only(error)]
    return "".join(lines).rstrip()


def run_for_effect(path: str | Path) -> None:
    """Run a Python config file for its registrations; ignore its result."""
    _config_of(find_config(path))


def file_result(file: Path) -> object:
    """Return the result of a Python file's get_config(): a Config, or a config object of an original program."""
    files_read.append(file)
    return _config_of(file)


def read_config(path: str | Path) -> Config:
    """Return the config of one file, unchecked and without overrides."""
    file = find_config(path)
    files_read.append(file)
    if file.suffix == ".json":
        try:
            return from_dict(json.loads(read_text(file)))
        except (OSError, ValueError, RecursionError) as error:
            require_no_other(file.parent, "[config]", "a config")
            raise UserError(f"[config] {file}: {error}") from error
    config = _config_of(file)
    if not isinstance(config, Config):
        raise UserError(f"[config] {file}: get_config(): expected a Config, got {type(config).__name__}")
    run_named_optimizers(config.optim)
    return config


def load_config(path: str | Path, overrides: Sequence[str] | Changes = ()) -> Config:
    """Return a checked config: `load_config("small.py", {"train.steps": 10})`.

    path: a file, or a name looked up in configs/. overrides: a dict of fields as in Config.replace, or arguments in any
    command-line grammar, such as ["train.steps=10"].
    Raise UserError (a ValueError) with the field, the rule and the nearest valid name.
    """
    if isinstance(overrides, str):
        raise TypeError(
            f"[load_config] overrides: expected a dict of fields or a list of strings, got a str; pass [{overrides!r}]"
        )
    config = read_config(path)
    if isinstance(overrides, Mapping):
        return with_changes(config, overrides)
    words = split_words(list(overrides), config)
    config = apply_overrides(config, words)
    require_own_steps(config, [item.path for item in words])
    check_config(config)
    return config


class ConfigList(dict[str, str]):
    """Mapping of config names to one-line descriptions; prints as a table."""

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        return "\n".join(f"{name:<{width}}  {line}" for name, line in self.items())


def list_configs() -> ConfigList:
    """Return the names of all configs for mc.load_config and mc.Trainer, such as "gpt2/tiny.py", with descriptions.

    A description is the first sentence of the file's docstring; no file is run.
    """
    return ConfigList({name: _first_sentence(read_text(file)) for name, file in config_files().items()})


def _first_sentence(source: str) -> str:
    """Return the first sentence of a module's docstring; empty if it has none or is not Python."""
    try:
        found = ast.get_docstring(ast.parse(source)) or ""
    except SyntaxError:
        return ""
    lines = found.partition("\n\n")[0].splitlines()
    end = next((number for number, line in enumerate(lines) if line.endswith(".")), len(lines) - 1)
    return " ".join(lines[: end + 1])
