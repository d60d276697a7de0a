"""Config files: list them, find one, and run its get_config()."""

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
from mudd_core.base.paths import url_fault
from mudd_core.base.regular_files import read_text
from mudd_core.config.check import check_config, require_own_steps
from mudd_core.config.foreign import ALIASES, KINDS
from mudd_core.config.overrides import apply_overrides, split_words
from mudd_core.config.own_files import files_read
from mudd_core.config.own_optimizers import run_named_optimizers
from mudd_core.config.replaced import Changes, with_changes
from mudd_core.config.run_config import Config
from mudd_core.config.saved import from_dict
from mudd_core.config.suggest import FAIR, likeness, nearest


def config_folders() -> list[Path]:
    """Return the folders in which config names are looked up: the checkout's configs/, then the installed copy."""
    package = Path(mudd_core.__file__).resolve().parent
    folders = [package.parent.parent / "configs", package / "configs"]
    if sys.argv and sys.argv[0]:  # the package is installed, and a checkout's launch.py started it
        folders.insert(0, Path(sys.argv[0]).resolve().parent / "configs")
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def config_files() -> dict[str, Path]:
    """Return the Python config files of config_folders() by name for load_config. The first file of a name is used."""
    found = {file.relative_to(f).as_posix(): file for f in config_folders()[::-1] for file in f.rglob("*.py")}
    return dict(sorted(found.items()))


def find_config(name: str | Path) -> Path:
    """Return the file for `small.py`, `gpt2/tiny` or a path; raise UserError with the nearest name."""
    fault = url_fault(name)
    if fault is not None:
        raise UserError(f"[config] --config: {fault}")
    is_own = Path(name).suffix == ".py" and _is_file(
        Path(name)
    )  # a file has priority over an alias of the same name
    asked = Path(name if is_own else ALIASES.get(str(name), name))
    spellings = [asked]
    if asked.name and asked.suffix not in (".py", ".json"):
        spellings.insert(0, asked.with_name(asked.name + ".py"))
    for spelling in spellings:
        for folder in [Path(), *config_folders()]:
            if _is_file(folder / spelling):
                return folder / spelling
    require_no_other(Path(name), "[config]", "a config")
    kind = asked.with_suffix("") if asked.suffix == ".py" else asked
    if of_family := family_configs(kind.as_posix()):
        raise UserError(f"[config] no config file '{name}'; configs of {kind.name}: {', '.join(of_family)}")
    known = list(config_files())
    raise UserError(f"[config] no config file '{name}'{_nearest_config(asked, known) or _listing(known)}")


def _nearest_config(asked: Path, known: Sequence[str]) -> str:
    """Return `; did you mean 'x'?` for the closest config by its name, by the name without its folder, or by an alias.

    known: the names of all configs.
    """
    if hint := nearest(asked.as_posix(), known):
        return hint
    plain = asked.with_suffix("") if asked.suffix == ".py" else asked
    others = {Path(file).stem: file for file in known} | {
        theirs: f"{ours}.py" for theirs, ours in ALIASES.items()
    }
    closest = max(others, key=lambda other: likeness(plain.as_posix(), other), default="")
    return f"; did you mean '{others[closest]}'?" if likeness(plain.as_posix(), closest) >= FAIR else ""


def is_shipped(file: str) -> bool:
    """Return True for a file of config_folders(), which an update of this program may change."""
    path = Path(file).resolve()
    return any(path.is_relative_to(folder) for folder in config_folders())


def family_configs(name: str) -> list[str]:
    """Return the names of the configs of a kind; empty for other names.

    A kind is a folder of configs/, such as a family, or a name in foreign.KINDS; llama also finds llama_7b.
    """
    kind = name.removeprefix("configs/").strip("/").lower()
    folder, listed = KINDS.get(kind, kind), list(config_files())
    found = [file for file in listed if folder and file.startswith(f"{folder}/")]
    others = [file for file in listed if kind in KINDS and kind in file.lower() and file not in found]
    return [*found, *others]


def _listing(known: Sequence[str]) -> str:
    """Return `; there are: small.py, tiny.py, 7 in gpt2/, ...`."""
    counts: dict[str, int] = {}
    for name in known:
        folder, slash, file = name.rpartition("/")
        counts[folder + slash or file] = counts.get(folder + slash or file, 0) + 1
    names = [f"{count} in {name}" if name.endswith("/") else name for name, count in counts.items()]
    return f"; there are: {', '.join(names)}" if names else ""


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # the file name is impossible, or the folder is unreadable
        return False


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
