"""mu-Transformer's grammar: --config=FILE, --config.FIELD=VALUE and the flags of its launcher."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from mudd_core.base.errors import UserError
from mudd_core.base.packages import needed
from mudd_core.base.types import JsonObject
from mudd_core.config import Config, MupConfig, find_config, read_config
from mudd_core.config.fields import replace_path
from mudd_core.config.load import file_result
from mudd_core.config.overrides import split_words
from mudd_core.config.suggest import nearest
from mudd_core.programs.flags import Typed, split_flags, value_of
from mudd_core.programs.mu_transformer import keys_run as keys
from mudd_core.programs.mu_transformer.data import begun, default_data
from mudd_core.programs.mu_transformer.keys_values import keys_of, profile
from mudd_core.programs.mu_transformer.sweep import Sweep
from mudd_core.programs.program import CommandLine, rows_of
from mudd_core.programs.resolved import Resolved
from mudd_core.programs.row import Row, Value
from mudd_core.programs.table import Applied, Setting, apply, with_own_words
from mudd_core.run.store.run_folder import RunFolder

_GRAMMAR = "mu_transformer"
_BASE = "mup/base"
_MODES = {"train": "train", "validation": "validate", "test": "validate", "sample": "sample"}
_PATH = f"{_GRAMMAR}/"  # a config path with this folder is a config of the original


@dataclass(frozen=True)
class _File:
    """A config file: the base config and the keys that the file sets. unknown: keys without a meaning in mudd_core."""

    config: Config
    path: str
    keys: Mapping[str, Value]
    unknown: tuple[str, ...] = ()


def resolve(asked: CommandLine) -> Resolved:
    """Return the unchecked config; raise UserError that names a wrong argument."""
    rows = rows_of(_GRAMMAR)
    file = _read(asked.config, rows)
    typed, own = split_flags(_GRAMMAR, asked.words, rows)
    notes = [f"{file.path}: keys that mean nothing here: {', '.join(file.unknown)}"] if file.unknown else []
    settings = _settings(file, typed, rows)
    given = {*file.keys, *typed} | ({keys.SAMPLING} if _PATH in asked.config else set())
    applied = _applied(file, rows, settings, given, own)
    values = keys.final_values({name: setting.value for name, setting in settings.items()}, applied.config)
    command, name, source = _run(asked, values)
    if _PATH in asked.config or file.keys:
        fields = {item.path for item in split_words(own, file.config)}
        saved = begun(_workdir(asked, name), applied.config.storage.map)
        data = default_data(rows, settings, typed, fields, saved)
        applied = _applied(file, rows, settings, given - data.dropped | data.taken, own)
        applied.notes.extend(data.notes)
    config = replace_path(applied.config, "name", name)
    sizes = {key: value for key, value in file.keys.items() if key in keys.MESH}
    if sizes and not any(path in applied.origins for path in keys.MESH_FIELDS):
        config, said = keys.file_mesh(config, sizes)
        notes += said
    for path, value in profile(values).items():
        if path not in applied.origins:
            config = replace_path(config, path, value)
    if source:
        config = _continued(config, asked, source)
    return Resolved(
        grammar=_GRAMMAR,
        config=config,
        command=command,
        workdir=_workdir(asked, name),
        origins=applied.origins,
        notes=[*notes, *dict.fromkeys(applied.notes)],
        files=[file.path],
        style=_GRAMMAR,
        sweep=Sweep(columns) if command == "train" and (columns := keys.sweep_columns(values)) else None,
        split="test" if asked.options.get("--mode") == "test" else "",
        fields=dict(keys.start_fields(values, config)),
    )


def _applied(
    file: _File, rows: Mapping[str, Row], settings: Mapping[str, Setting], given: set[str], own: list[str]
) -> Applied:
    """Apply the given keys to the config of the file, then overrides of config fields."""
    applied = apply(_GRAMMAR, rows, file.config, settings, lambda row: row.name not in given)
    _judge_scale(file, applied, given)
    return with_own_words(_GRAMMAR, applied, own)


# ---- files ------------------------------------------------------------------------------------------------


def _read(name: str, rows: Mapping[str, Row]) -> _File:
    path = find_config(name)
    if _is_original(path):
        needed("ml_collections", f"[config] {path}", "for its ConfigDict")
        with _importable(path):
            found = file_result(path)
        if not isinstance(found, Config):
            return _of_dict(path, found, rows)
        config = found
    else:
        config = read_config(name)
    if not isinstance(config.model, MupConfig):
        raise UserError(f"[{_GRAMMAR}] --config={name}: expected family mup, got {config.model.family}")
    return _File(config, str(path), {})


def _is_original(path: Path) -> bool:
    """Return whether a file may return a ConfigDict: it mentions ml_collections, or is in a folder mu_transformer."""
    if path.suffix != ".py":
        return False
    try:
        return _GRAMMAR in path.parts or "ml_collections" in path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


@contextmanager
def _importable(path: Path) -> Iterator[None]:
    """Let a config file in a checkout of the original import the original's modules."""
    parts = path.resolve().parts
    root = str(Path(*parts[: parts.index(_GRAMMAR)])) if _GRAMMAR in parts else str(path.resolve().parent)
    sys.path.insert(0, root)
    try:
        yield
    finally:
        sys.path.remove(root)


@runtime_checkable
class _ConfigDict(Protocol):
    """A ConfigDict of ml_collections, which need not be installed."""

    def to_dict(self) -> JsonObject:
        """Return its keys and values."""


def _of_dict(path: Path, found: object, rows: Mapping[str, Row]) -> _File:
    if not isinstance(found, _ConfigDict):
        raise UserError(f"[config] {path}: get_config(): expected a ConfigDict, got {type(found).__name__}")
    there = found.to_dict()
    known = {name: value for name, value in there.items() if name in rows}
    return _File(read_config(_BASE), str(path), known, tuple(name for name in there if name not in rows))


# ---- arguments --------------------------------------------------------------------------------------------


def _settings(file: _File, typed: Typed, rows: Mapping[str, Row]) -> dict[str, Setting]:
    """Return the value of every key. Later sources win: original default, base config, config file, command line."""
    base = keys_of(file.config)
    settings = {}
    for name, row in rows.items():
        default = base.get(name, row.default)
        setting = Setting(default, default)
        if name in file.keys and name not in keys.MESH:
            setting = Setting(_of_file(file, name, file.keys[name], default), default, file.path)
        if name in typed:
            word, text = typed[name]
            value = value_of(_GRAMMAR, name, keys.LIKE.get(name, default), text)
            setting = replace(setting, value=value, word=word)
        elif name in keys.MESH:
            setting = replace(setting, value=1)
        settings[name] = setting
    if keys.OLD_RATE in typed and keys.RATE in typed:
        raise UserError(f"[{_GRAMMAR}] {keys.OLD_RATE} is the old name of {keys.RATE}; type only one of them")
    return settings


def _of_file(file: _File, name: str, value: Value, default: Value) -> Value:
    """Check the type of a value in a file. An integer is accepted if the default is a float."""
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if default is not None and value is not None and type(value) is not type(default):
        wanted = type(default).__name__
        raise UserError(f"[{_GRAMMAR}] {file.path}: {name}: expected {wanted}, got {value!r}")
    return value


def _judge_scale(file: _File, applied: Applied, given: set[str]) -> None:
    """Raise UserError if d_head changes but qk_scale does not."""
    before, now = file.config.model, applied.config.model
    assert isinstance(before, MupConfig) and isinstance(now, MupConfig)
    if fault := now.overridden(before, given):
        raise UserError(f"[{_GRAMMAR}] {fault}")


# ---- the run ----------------------------------------------------------------------------------------------


def _run(asked: CommandLine, values: Mapping[str, Value]) -> tuple[str, str, str]:
    """Return (command, name of the run, name of another run that it continues from, or empty)."""
    mode = asked.options.get("--mode", "")
    if mode and mode not in {*_MODES, *_MODES.values()}:
        raise UserError(
            f"[{_GRAMMAR}] --mode: expected one of {', '.join(_MODES)}, got '{mode}'{nearest(mode, _MODES)}"
        )
    command = _MODES.get(mode, mode) or asked.command or "train"
    read, written = keys.run_names(values)
    if command != "train":
        return command, read, ""
    return command, written, read if read != written else ""


def _workdir(asked: CommandLine, name: str) -> str:
    """Return the folder of the run with this name; empty without --workdir."""
    folder = asked.options.get("--workdir", "")
    return f"{folder.rstrip('/')}/{name}" if folder else ""


def _continued(config: Config, asked: CommandLine, source: str) -> Config:
    """Return the config of a run that starts from the checkpoint of another run, if that run has one."""
    path = Path(asked.options.get("--workdir", "runs")) / source
    if not RunFolder(path).checkpoint_folder.is_dir():
        return config
    config = replace_path(config, "start.load_parameters_path", str(path))
    config = replace_path(config, "start.keep_optimizer", True)
    return replace_path(config, "start.keep_step", True)
