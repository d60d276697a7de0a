"""jax-lm-training's grammar: `train` with long flags, dashes or underscores in their names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.regular_files import read_text
from mudd_core.config import Config, GPT2Config, read_config
from mudd_core.config.fields import replace_path, walk
from mudd_core.config.foreign import ALIASES
from mudd_core.config.origins import Origin
from mudd_core.config.suggest import nearest
from mudd_core.data.pipelines.features import row_length
from mudd_core.interop.hf_settings import model_config
from mudd_core.programs.flags import Typed, split_flags, value_of
from mudd_core.programs.jax_lm import keys
from mudd_core.programs.program import CommandLine, program_of_command, rows_of
from mudd_core.programs.resolved import Resolved
from mudd_core.programs.row import Row, Value
from mudd_core.programs.table import Applied, Setting, apply, with_own_words

_GRAMMAR = "jax_lm"
_NAME = f"[{_GRAMMAR}] {keys.flag(keys.MODEL)}"
_SHIPPED = {name: file for name, file in ALIASES.items() if file.startswith("gpt2/")}
_ROWS, _LENGTH = "max_sequence_length", "train.seq_len"


def resolve(asked: CommandLine) -> Resolved:
    """Return the unchecked config; raise UserError that names a wrong flag."""
    rows = rows_of(_GRAMMAR)
    typed, own = split_flags(_GRAMMAR, asked.words, rows)
    settings = _settings(rows, typed)
    name = str(settings[keys.MODEL].value)
    config, file = _base(name)
    skipped = {key for key in keys.ONLY_IF_TYPED if key not in typed}
    if not typed.keys() & set(keys.TRACKERS):
        skipped.add(keys.TRACKER_FOLDER)
    workdir = asked.options.get("--workdir") or str(settings[keys.FOLDER].value)
    notes = []
    if _inside(settings[keys.RESTORED].value, workdir):
        skipped.add(keys.RESTORED)
        notes.append(
            f"the run in {workdir} continues from its newest checkpoint without {keys.flag(keys.RESTORED)}"
        )
    applied = apply(_GRAMMAR, rows, config, settings, lambda row: row.name in skipped)
    _add_model_origins(applied, file)
    applied = with_own_words(_GRAMMAR, applied, own)
    notes += _follow_rows(applied, settings[_ROWS])
    return Resolved(
        grammar=_GRAMMAR,
        config=applied.config,
        command=asked.command if asked.command and program_of_command(asked.command) is None else "train",
        workdir=workdir,
        origins=applied.origins,
        notes=[*notes, *dict.fromkeys(applied.notes)],
        files=[file],
        style=_GRAMMAR,
    )


def _add_model_origins(applied: Applied, file: str) -> None:
    """Record that the model's fields come from a file that the command names."""
    for info in walk(applied.config):
        if info.path.startswith("model."):
            applied.origins.setdefault(info.path, Origin(None, file, ""))


def _inside(checkpoint: Value, workdir: str) -> bool:
    """Return whether a checkpoint is inside the run's work directory."""
    if checkpoint is None or "://" in workdir:
        return False
    folder = Path(workdir).absolute()
    return folder in (Path(str(checkpoint)).absolute(), *Path(str(checkpoint)).absolute().parents)


def _settings(rows: Mapping[str, Row], typed: Typed) -> dict[str, Setting]:
    settings = {name: Setting(row.default, row.default) for name, row in rows.items()}
    for name, (word, text) in typed.items():
        value = value_of(_GRAMMAR, name, rows[name].default, text)
        settings[name] = replace(settings[name], value=value, word=word)
    return settings


def _follow_rows(applied: Applied, asked: Setting) -> list[str]:
    """Set train.seq_len to the length of the stored sequences, as the original does.

    Return a note if the length differs.
    """
    data = applied.config.data
    length = row_length(data) if data.pipeline == "features" else 0
    if length in (0, applied.config.train.seq_len):
        return []
    applied.config = replace_path(applied.config, _LENGTH, length)
    applied.origins[_LENGTH] = Origin(asked.default, data.path, asked.word)
    typed = f"{asked.word}: " if asked.word else ""
    return [f"{typed}the sequences of {data.path} have {length} ids, and the run uses this length"]


def _base(name: str) -> tuple[Config, str]:
    """Return (a config with the model of this name, the file that defines the model)."""
    file = Path(name) / "config.json"
    if file.is_file():
        return _with_model(read_config(_SHIPPED["gpt2"]), file), str(file)
    if name not in _SHIPPED:
        known = [one for one in _SHIPPED if "/" not in one]
        raise UserError(
            f"{_NAME}: expected {', '.join(known)} or a folder with config.json, got "
            f"'{name}'{nearest(name, _SHIPPED)}"
        )
    return read_config(_SHIPPED[name]), _SHIPPED[name]


def _with_model(config: Config, file: Path) -> Config:
    try:
        model = model_config(json.loads(read_text(file)))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{_NAME}: {file}: {error}") from error
    if not isinstance(model, GPT2Config):
        raise UserError(f"{_NAME}: expected a GPT-2, got family {model.family} in {file}")
    data = replace(config.data, vocab_size=max(257, model.vocab_size), recipe_tokenizer="")
    return replace(config, name=file.parent.resolve().name or "gpt2", model=model, data=data)
