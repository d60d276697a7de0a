"""The config files of the checkout and of the installed package: list them, and find one by its name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import mudd_core
from mudd_core.base.errors import UserError
from mudd_core.base.other_folders import require_no_other
from mudd_core.base.paths import url_fault
from mudd_core.config.foreign import ALIASES, KINDS
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


def is_config(word: str) -> bool:
    """Return True if an argument names a config file."""
    try:
        return find_config(word).suffix in (".py", ".json")
    except UserError:
        return False


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
