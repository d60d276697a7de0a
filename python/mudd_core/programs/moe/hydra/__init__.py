"""The Hydra grammar of the mixture-of-experts benchmark: `launch.py clm KEY=VALUE ...`.

A command line becomes an ordinary config. With --multirun, every combination of comma-separated values becomes a
command line.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.config import Config, DataConfig, LogConfig, OptimConfig, config_folders
from mudd_core.config.arguments import argument
from mudd_core.config.fields import replace_path
from mudd_core.config.origins import Origin
from mudd_core.config.schema import fields_of_all
from mudd_core.data.sources.access import Access
from mudd_core.programs.environment import environment_notes
from mudd_core.programs.mesh_sizes import devices_of, ranks_of
from mudd_core.programs.moe.hydra.compose import Composed, compose, instead_of
from mudd_core.programs.moe.hydra.files import Folders, folders_of
from mudd_core.programs.moe.hydra.interpolation import resolved
from mudd_core.programs.moe.hydra.model import (
    ModelChoice,
    batch_notes,
    choose_model,
    fields_of_model,
    imported_folder,
    with_scope,
)
from mudd_core.programs.moe.hydra.tree import flat, put_at
from mudd_core.programs.moe.hydra.values import split_choices
from mudd_core.programs.moe.hydra.words import HydraWord, HydraWords, split_hydra_words
from mudd_core.programs.moe.hydra.written import hydra_files, to_yaml
from mudd_core.programs.moe.keys import FOLDER, ROWS
from mudd_core.programs.moe.keys_model import NAME, SHAPE
from mudd_core.programs.moe.keys_values import text_of
from mudd_core.programs.program import CommandLine, rows_of
from mudd_core.programs.resolved import Resolved
from mudd_core.programs.row import Value
from mudd_core.programs.table import Applied, Setting, apply, with_own_words

_COMMANDS = ("validate", "sample", "report", "data")
_QUOTES = "'\""
_MULTIRUN = ("--multirun", "-m")
_BY_NAME = {row.name: row for row in ROWS}


def shipped_folders() -> list[Path]:
    """Return the folders with the benchmark's own configs."""
    return [folder / "clm" for folder in config_folders() if (folder / "clm").is_dir()]


def compose_words(words: Sequence[str]) -> tuple[HydraWords, Composed, list[str], Folders]:
    """Return Hydra's arguments, the tree that they compose, the overrides of config fields, and the folders."""
    ours, rest = _split_ours(words)
    found = split_hydra_words(rest)
    folders = folders_of(found.options.get("--config-path"), shipped_folders())
    values = [word for word in found.overrides if not _is_ours(word, folders)]
    ours += [word.word for word in found.overrides if _is_ours(word, folders)]
    found.overrides = values
    return found, compose(folders, found.options.get("--config-name", "config"), values), ours, folders


def resolve(asked: CommandLine) -> Resolved:
    """Return the unchecked config; raise UserError that names a wrong argument and the nearest key."""
    if asked.config:
        raise UserError(
            f"[hydra] --config={asked.config}: the command clm accepts --config-name=NAME and key=value"
        )
    words, composed, ours, folders = compose_words(asked.words)
    if asked.options.get("--workdir"):
        put_at(composed.tree, (FOLDER,), asked.options["--workdir"])
    tree = resolved(composed.tree, devices_of(asked.options))
    if "--cfg" in words.options:
        shown = tree if "--resolve" in words.options else composed.tree
        return Resolved(
            "hydra",
            Config(),
            answer=to_yaml({key: shown[key] for key in shown if key != "hydra"}).rstrip("\n"),
        )
    leaves = flat(tree)
    _require_known(leaves, composed)
    settings = _settings(leaves, composed)
    keys = {row.name: settings[row.name].value if row.name in settings else None for row in ROWS}
    choice = choose_model(keys, shipped_folders(), Access(online=_online(ours)))
    applied = apply("hydra", rows_of("hydra"), _base(choice, f"{composed.name}.yaml"), settings)
    imports = _add_model(applied, choice, settings)
    _let_override(applied, ours, settings)
    applied, notes = with_scope(with_own_words("hydra", applied, ours))
    devices, ranks = devices_of(asked.options), ranks_of(asked.options, asked.environment)
    return Resolved(
        grammar="hydra",
        config=applied.config,
        command=asked.command if asked.command in _COMMANDS else "train",
        workdir=text_of(keys, FOLDER),
        origins=applied.origins,
        notes=[
            *asked.notes,
            *environment_notes(dict(asked.environment)),
            *_unknown(leaves),
            *applied.notes,
            *batch_notes(settings, applied.config, devices, ranks),
            *notes,
        ],
        files=[*composed.read, str(choice.file)],
        style="moe",
        writes=hydra_files(composed, tree, [word.word for word in words.overrides], folders),
        imports=imports,
    )


def _let_override(applied: Applied, ours: Sequence[str], settings: Mapping[str, Setting]) -> None:
    """Let config fields of the command override values from the file or folder that a key of the command names."""
    named = {settings[key].word for key in (SHAPE, NAME) if key in settings}
    typed = {argument(word).name for word in ours}
    for path, origin in applied.origins.items():
        if path in typed and origin.word in named:
            applied.origins[path] = replace(origin, word="")


def _online(ours: Sequence[str]) -> bool:
    """Return whether the arguments set hub.online, which is needed before the config is complete."""
    return any(re.fullmatch(r"(--config\.|\+{0,2})hub\.online=(true|1|yes|on)", word, re.I) for word in ours)


def _split_ours(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments into (arguments that Hydra does not parse, all others)."""
    return [word for word in words if is_raw(word)], [word for word in words if not is_raw(word)]


def is_raw(word: str) -> bool:
    """Return whether an argument is `--config.field=value`, or a config field with an unquoted `=` in its value."""
    item = argument(word)
    if item.mark == "--" and item.key != item.name:
        return True
    quoted = item.value is None or "=" not in item.value or item.value[0] in _QUOTES
    return not quoted and item.mark in ("", "+", "++") and any(i.path == item.key for i in fields_of_all())


def _is_ours(word: HydraWord, folders: Folders) -> bool:
    """Return whether an override sets a config field, not a key of the benchmark."""
    if word.kind == "delete" or word.key in _BY_NAME or folders.has_group(word.key):
        return False
    return any(info.path == word.key for info in fields_of_all())


def _require_known(leaves: Mapping[str, Value], composed: Composed) -> None:
    """Raise UserError for an argument that sets an unknown key."""
    for key in leaves:
        if key not in _BY_NAME and key in composed.words:
            hint = instead_of(key, composed.words[key], _BY_NAME)
            raise UserError(f"[hydra] {composed.words[key]}: there is no key '{key}' in this grammar{hint}")


def _unknown(leaves: Mapping[str, Value]) -> list[str]:
    """Return a line about the keys in the files that nothing reads."""
    unknown = [key for key in leaves if key not in _BY_NAME]
    return [f"unused keys of the config files: {', '.join(unknown)}"] if unknown else []


def _settings(leaves: Mapping[str, Value], composed: Composed) -> dict[str, Setting]:
    """Return the keys that are set; deleted keys are null."""
    found: dict[str, Setting] = {}
    for row in ROWS:
        word, file = composed.words.get(row.name, ""), composed.files.get(row.name, "")
        if row.name in leaves:
            found[row.name] = Setting(leaves[row.name], row.default, file, word)
        elif row.name in composed.choices:
            found[row.name] = Setting(composed.choices[row.name], row.default, file, word)
        elif row.name in composed.deleted:
            found[row.name] = Setting(None, row.default, "", composed.deleted[row.name])
    return found


def _base(choice: ModelChoice, file: str) -> Config:
    """Return the benchmark's config before its keys are applied. file: name of the config."""
    return Config(
        model=choice.model,
        data=DataConfig(vocab_size=choice.model.vocab_size),
        optim=OptimConfig(decay="no_norm_no_bias"),
        log=LogConfig(mllog=True, mllog_config=file),
    )


def _add_model(
    applied: Applied, choice: ModelChoice, settings: Mapping[str, Setting]
) -> tuple[str, str] | None:
    """Record the origin of the model's shape, and let the run start from the weights that come with it.

    Return the folder of the weights and the work directory into which they are imported first.
    """
    path, name = settings.get(SHAPE), settings.get(NAME, Setting(None))
    by = path if path is not None and path.value else name
    for field in fields_of_model(choice.model):
        applied.origins.setdefault(field, Origin(None, str(choice.file), by.word))
    if not choice.weights:
        return None
    field, folder = "start.load_parameters_path", str(imported_folder(choice.weights, _last(name.value)))
    if applied.config.start.load_parameters_path:
        return None  # checkpoint_manager_path replaces the model's own weights
    applied.config = replace_path(applied.config, field, folder)
    applied.origins[field] = Origin("", name.file, name.word)
    return choice.weights, folder


def _last(name: Value) -> str:
    return str(name).rstrip("/").rpartition("/")[2]


def jobs(words: Sequence[str], kept: Sequence[str]) -> list[list[str]]:
    """Return the arguments of each run, in Hydra's order; run i has the folder run_dir/i.

    `words`: arguments in Hydra's grammar. kept: options of launch.py (--ranks=2) for every run.
    """
    single = [word for word in words if word not in _MULTIRUN]
    choices = [_texts(word) for word in single]
    found = []
    for number, picked in enumerate(itertools.product(*choices)):
        _, composed, _, _ = compose_words(picked)
        folder = resolved(composed.tree).get(FOLDER)
        if not isinstance(folder, str) or not folder:
            raise UserError(f"[hydra] --multirun: expected a config with {FOLDER}, the folder of the runs")
        rest = [word for word in picked if argument(word).option.lstrip("+") != FOLDER]
        quoted = folder.replace("'", "\\'")
        found.append([*kept, *rest, f"++{FOLDER}='{quoted}/{number}'"])
    return found


def _texts(word: str) -> list[str]:
    """Return the argument alone, or one argument for each value in it."""
    item = argument(word)
    if item.mark in ("-", "--") or item.value is None or is_raw(word):
        return [word]
    try:
        return [f"{item.option}={choice}" for choice in split_choices(item.value)] or [word]
    except ValueError as error:
        raise UserError(f"[hydra] {word}: {error}") from None
