"""MaxText's grammar: a yml file, then key=value (MUDDFormer, TokenFormer)."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.config import Config, ModelConfig
from mudd_core.config.arguments import Arguments
from mudd_core.config.fields import walk
from mudd_core.config.origins import Origin
from mudd_core.config.suggest import nearest
from mudd_core.programs.environment import environment_notes
from mudd_core.programs.maxtext.batch import batch_notes, of_all_devices, with_evaluation
from mudd_core.programs.maxtext.classes import class_of
from mudd_core.programs.maxtext.keys import CLASS, EVALUATES, FOLDER, RUN
from mudd_core.programs.maxtext.keys_classes import CLASSES
from mudd_core.programs.maxtext.keys_model import BLOCK, decides, is_default_of, scaled
from mudd_core.programs.maxtext.keys_training import KEEP
from mudd_core.programs.maxtext.model import model_of
from mudd_core.programs.maxtext.yml import Yml, read_yml, typed_value
from mudd_core.programs.mesh_sizes import devices_of, ranks_of
from mudd_core.programs.program import KEY_PREFIX, CommandLine, rows_of
from mudd_core.programs.resolved import Resolved
from mudd_core.programs.row import Row, Value
from mudd_core.programs.table import Applied, Setting, apply, require_taken, with_own_words
from mudd_core.run.store.run_folder import RunFolder

_GRAMMAR = "maxtext"


def resolve(asked: CommandLine) -> Resolved:
    """Apply the yml file, the class, M_<KEY> variables and key=value in this order; raise UserError for an error."""
    rows, yml = rows_of(_GRAMMAR), read_yml(asked.config)
    devices, ranks = devices_of(asked.options), ranks_of(asked.options, asked.environment)
    typed, own, notes = _split(asked, rows, _page(yml))
    notes = [*asked.notes, *notes, *yml.twice]
    if yml.unknown(rows):
        notes.append(f"{yml.files[0]}: keys that mean nothing here: {', '.join(yml.unknown(rows))}")
    settings = {
        name: Setting(value, yml.defaults.get(name), yml.origin[name])
        for name, value in yml.values.items()
        if name in rows
    }
    settings.setdefault(KEEP, Setting(None))
    untyped = _with_class(settings, typed, yml, rows)
    settings = dict(untyped)
    for name, (word, text) in typed.items():
        before = settings.get(name, Setting(rows[name].default, rows[name].default))
        value = typed_value(name, before.value, rows[name].default, text)
        settings[name] = replace(before, value=value, word=word)
    if "--workdir" not in asked.options and not settings.get(RUN, Setting("")).value:
        raise UserError(f"[{_GRAMMAR}] {RUN}: expected {RUN}=NAME, the folder of the run, got none")
    for name, setting in settings.items():
        require_taken(
            _GRAMMAR, rows[name], setting.value
        )  # checked first, because the model reader would report it with less detail
    notes += _leave_out_foreign(settings, yml)
    settings, follows = with_evaluation(settings, untyped, asked.options)
    whole = of_all_devices(settings, devices)
    applied = apply(_GRAMMAR, rows, Config(model=_model(settings)), whole, _of_model)
    notes += batch_notes(settings, devices, ranks, follows)
    workdir, moved = _workdir(settings)
    _add_model_origins(applied, rows, settings)
    applied = with_own_words(_GRAMMAR, applied, own)
    evaluates = bool(settings[EVALUATES].value) if EVALUATES in settings else False
    command = asked.command or ("validate" if evaluates else "train")
    return Resolved(
        grammar=_GRAMMAR,
        config=applied.config,
        command=command,
        workdir=asked.options.get("--workdir", "") or workdir,
        origins=applied.origins,
        notes=[
            *notes,
            *([] if "--workdir" in asked.options else moved),
            *dict.fromkeys(applied.notes),
            *environment_notes(dict(asked.environment)),
        ],
        files=list(yml.files),
        style=_GRAMMAR,
        tags=evaluates,
        evaluates_start=command == "validate" and bool(applied.config.start.load_parameters_path),
    )


Typed = dict[str, tuple[str, str]]  # key -> (argument, value)


def _page(yml: Yml) -> str:
    """Return a hint that names the page with the keys of a base file."""
    name = "muddformer" if yml.values.get(BLOCK, "llama2") == "llama2" else "tokenformer"
    return (
        f"; docs/coming-from/{name}.md lists the keys; fields of mudd_core are typed as section.field=value"
    )


def _split(asked: CommandLine, rows: Mapping[str, Row], page: str) -> tuple[Typed, list[str], list[str]]:
    """Return (keys that the command or a variable sets, arguments that set config fields, notes)."""
    typed, own, notes = Typed(), list[str](), list[str]()
    arguments = Arguments(asked.words)
    for item in arguments:
        word, name, text = item.raw, item.option, item.value
        if item.mark in ("-", "--") or "." in name:
            own += arguments.typed(item)
        elif not name and text is not None:
            notes.append(f"'{word}': an argument without a name is ignored")
        elif text is None:
            raise UserError(f"[{_GRAMMAR}] '{word}': expected key=value")
        elif name not in rows:
            raise UserError(f"[{_GRAMMAR}] unknown key '{name}' in '{word}'{nearest(name, rows) or page}")
        elif name in typed:
            raise UserError(f"[{_GRAMMAR}] {name} is given twice: {typed[name][0]} and {word}")
        else:
            typed[name] = (word, text)
    _add_variables(asked.environment, rows, typed, page)
    return typed, own, notes


def _add_variables(environment: Mapping[str, str], rows: Mapping[str, Row], typed: Typed, page: str) -> None:
    for variable, text in sorted(environment.items()):
        if not variable.startswith(KEY_PREFIX):
            continue
        name = variable.removeprefix(KEY_PREFIX).lower()
        if not name or variable != variable.upper() or name not in rows:
            known = (KEY_PREFIX + key.upper() for key in rows)
            raise UserError(
                f"[{_GRAMMAR}] {variable}: expected {KEY_PREFIX} and a key in capitals"
                f"{nearest(variable, known) or page}"
            )
        if name in typed:
            raise UserError(f"[{_GRAMMAR}] {name} is given twice: {typed[name][0]} and {variable}={text}")
        typed[name] = (f"{variable}={text}", text)


def _with_class(
    settings: dict[str, Setting], typed: Typed, yml: Yml, rows: Mapping[str, Row]
) -> dict[str, Setting]:
    """Add the settings of the class that the command names; a base file with classes requires one."""
    if settings.get(BLOCK, Setting("llama2")).value != "llama2":
        if CLASS in typed and typed[CLASS][1] != "default":
            raise UserError(
                f"[{_GRAMMAR}] {CLASS}: {yml.files[0]} has no classes; leave out {typed[CLASS][0]}"
            )
        return settings
    word, name = typed.get(CLASS, ("", str(settings.get(CLASS, Setting("")).value)))
    hint = "" if word else f"; add {CLASS}={next(iter(CLASSES))} or another"
    values, place = class_of(name, yml.files[0], rows, hint)
    result = dict(settings)
    for key, value in values.items():
        default = settings[key].default if key in settings else None
        result[key] = Setting(value, default, place)
    return result


def _leave_out_foreign(settings: dict[str, Setting], yml: Yml) -> list[str]:
    """Remove model keys of the command that the base file and the class do not have; return a note for each.

    A key of another class has no effect, as in MUDDFormer's program. Raise UserError for a key that no class has,
    unless its value is the program's default. All keys stay if the command also sets the block.
    """
    if settings.get(BLOCK, Setting("")).word:
        return []
    notes, rows = list[str](), rows_of(_GRAMMAR)
    block = str(settings.get(BLOCK, Setting("llama2")).value)
    for name, setting in list(settings.items()):
        if not setting.word or setting.file or not _of_model(rows[name]):
            continue
        if block == "llama2" and any(name in values for values in CLASSES.values()):
            notes.append(f"{setting.word}: has no effect: only other classes have this key")
        elif is_default_of(block, name, setting.value):
            notes.append(
                f"{setting.word}: this is the default of the original program, which reads it for "
                "other models only"
            )
        else:
            raise UserError(f"[{_GRAMMAR}] {setting.word}: {yml.files[0]} ({BLOCK} {block}) has no such key")
        del settings[name]
    return notes


def _of_model(row: Row) -> bool:
    """Return whether the model readers handle the key."""
    return bool(row.fields) and all(name.split(".")[0] == "model" for name in row.fields)


def _model(settings: Mapping[str, Setting]) -> ModelConfig:
    values: dict[str, Value] = {name: setting.value for name, setting in settings.items()}
    try:
        return model_of(scaled(values))
    except ValueError as error:
        raise UserError(str(error)) from error


def _add_model_origins(applied: Applied, rows: Mapping[str, Row], settings: Mapping[str, Setting]) -> None:
    """Record the origin of each model field. If a key of the command changes the field later, its argument is added."""
    paths = {info.path for info in walk(applied.config)}
    for name, row in rows.items():
        if name not in settings or not _of_model(row) or not decides(name, settings[name].value):
            continue
        setting = settings[name]
        for path in paths.intersection(row.fields):
            first = applied.origins.get(path)
            if first is None or not (first.file or first.word):
                applied.origins[path] = Origin(setting.default, setting.file, setting.word)
            elif setting.word:
                applied.origins[path] = replace(
                    first, word=" ".join(filter(None, (first.word, setting.word)))
                )


def _workdir(settings: Mapping[str, Setting]) -> tuple[str, list[str]]:
    """Return the run's folder and notes. It is below base_output_directory unless the name is absolute or a URL."""
    name, base = (str(settings.get(key, Setting("")).value or "") for key in (RUN, FOLDER))
    if "://" in name:
        return name.rstrip("/"), []
    plain = posixpath.normpath(name)
    if base and not posixpath.isabs(name):
        return f"{base.rstrip('/')}/{plain}", []
    earlier = f"runs/{plain}"  # the default of earlier versions of this program
    if not _holds_run(earlier) or _holds_run(plain):
        return plain, []
    return earlier, [f"{RUN}={name}: the existing run in {earlier} is used; a new run would be in ./{plain}"]


def _holds_run(folder: str) -> bool:
    run = RunFolder(Path(folder))
    return run.is_own_run
