"""The config of a derivation: the values of a statement, with the places of this machine and the user's own files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import mudd_core
from mudd_core.base.errors import UserError
from mudd_core.base.paths import IMPORTED, local
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.types import Json, JsonObject
from mudd_core.config import Config, apply_overrides, check_config, from_dict, split_words
from mudd_core.config.arguments import argument
from mudd_core.config.fields import replace_path, walk
from mudd_core.config.own_files import sha256_of, split_name
from mudd_core.provenance.run_facts import is_local
from mudd_core.provenance.statement import Statement
from mudd_core.run.records.events import EventName
from mudd_core.run.records.facts import BF16_UNIT, FP32_ORDER, SINCE, WIRE_HOSTS, bits_facts
from mudd_core.run.store.own_code import COPIES, run_named

_PLACE = "[verify] --train"
_PATH, _START, _TOKENIZER = "data.path", "start.load_parameters_path", "data.tokenizer"
# Fields whose value may be a path, and the values that are none. A path in a statement is never opened: it is typed.
_PLACES = {
    _PATH: ("",),
    "data.eval_path": ("",),
    "data.sources": ("",),
    "data.template": ("auto", "chatml"),
    _TOKENIZER: ("bpe", "bytes"),
    _START: ("",),
    "lora.start_from": ("",),
    "loss.teacher": ("",),
}
# The fields that arguments may set: these places, and fields that never change a bit.
_FREE = (*_PLACES, "data.cache_dir", "train.threads", "train.recompute", "hub.online", "storage.map")
_STARTED = (EventName.STARTED, EventName.RESUMED)


def require_same_code(statement: Statement) -> None:
    """Raise UserError unless this version made every start of the run, and with the bits of this machine."""
    here = mudd_core.__version__
    starts = statement.section("run").get("starts")
    known = [one for one in starts if isinstance(one, dict)] if isinstance(starts, list) else []
    trained = [one for one in known if one.get("event") in _STARTED]
    if not trained:
        raise UserError(f"{_PLACE}: expected a trained run, got weights that were imported or averaged")
    if len(trained) < len(known):
        raise UserError(
            f"{_PLACE}: expected a run that started from its config, got one that continues imported weights in their "
            "folder"
        )
    for version in (statement.text("code", "version"), *(one.get("version") for one in trained)):
        if version != here:
            raise UserError(
                f"{_PLACE}: expected mudd_core {here}, which is installed, got a run of {_shown(version)}; install "
                "that version to derive the weights"
            )
    _require_same_bits(statement)


def _require_same_bits(statement: Statement) -> None:
    """Raise UserError if this machine computes other bits than the run's machine."""
    bits = statement.section("run").get("bits")
    saved = bits if isinstance(bits, dict) else {}
    here = bits_facts(str(_values(statement).get("train.precision", "fp32")))
    for name in (FP32_ORDER, BF16_UNIT):
        if saved.get(name) != here.get(name):
            raise UserError(
                f"{_PLACE}: expected a machine with {name}={_shown(saved.get(name))}, as the run had, got "
                f"{here.get(name)}; fp32 runs of one version need no particular machine"
            )
    for name in (SINCE, WIRE_HOSTS):
        if name in saved:
            raise UserError(
                f"{_PLACE}: expected a run whose bits depend on its config alone, got one with {name}="
                f"{_shown(saved[name])} (it changed its machine or version, or rounded gradients between hosts)"
            )


def derived_config(
    statement: Statement, typed: Sequence[str], data: str | None, base: Path | None, *, saves: bool = False
) -> Config:
    """Return the config of the run with places on this machine.

    typed: arguments for these places and for own files. data: --data. base: the run with the base weights. saves: keep
    the checkpoints of the run. Raise UserError for a place that is not typed, and for own files with other bytes.
    """
    own = {item.name: item.value or "" for item in map(argument, typed) if item.name in COPIES}
    rest = [word for word in typed if argument(word).name not in own]
    if local_fields := sorted(path for path in _values(statement) if is_local(path)):
        raise UserError(
            f"{_PLACE}: {statement.place}: config.values: a statement has no {_shown(local_fields[0])}"
        )
    for item in split_words(rest, Config()):
        if item.path not in _FREE:
            raise UserError(f"{_PLACE}: expected {', '.join(_FREE)} or a file of your own, got {item.path}")
    _run_own_files(statement, own)
    try:
        config = from_dict(_nested(_values(statement)))
    except (TypeError, ArithmeticError, KeyError, AttributeError) as error:
        raise UserError(f"{_PLACE}: {statement.place}: not a config ({error})") from error
    if data is not None:
        config = replace_path(config, _PATH, data)
    if base is not None:
        config = replace_path(config, _START, str(base))
        if Path(config.data.tokenizer).name == IMPORTED:
            config = replace_path(config, _TOKENIZER, str(base / IMPORTED))
    places = split_words(rest, config)
    config = apply_overrides(config, places)
    _require_places(config, {item.path for item in places}, data, base)
    check_config(config)
    return _quiet(config, saves=saves)


def _values(statement: Statement) -> JsonObject:
    found = statement.section("config").get("values")
    return found if isinstance(found, dict) else {}


def _nested(values: JsonObject) -> JsonObject:
    """Return the sections of a config from values by path."""
    found: JsonObject = {}
    for path, value in values.items():
        section, dot, name = path.partition(".")
        if not dot:
            found[section] = value
            continue
        inner = found.setdefault(section, {})
        if not isinstance(inner, dict):
            raise UserError(f"{_PLACE}: config.values: '{section}' is a field and a section")
        inner[name] = value
    return found


def _run_own_files(statement: Statement, typed: dict[str, str]) -> None:
    """Run the user's files under the names that the config has; raise UserError for other bytes than the run's."""
    section = statement.section("run").get("own")
    own = section if isinstance(section, dict) else {}
    for key, known in own.items():
        name = known.get("name") if isinstance(known, dict) else None
        sha256 = known.get("sha256") if isinstance(known, dict) else None
        if key not in COPIES or not isinstance(name, str) or not isinstance(sha256, str):
            raise UserError(f"{_PLACE}: {statement.place}: run.own: expected a name and a SHA-256 by field")
        if key not in typed:
            raise UserError(
                f"{_PLACE}: this run needs your own code, and a command runs only the files that you name; read the "
                f"code, then add {key}=FILE.py:{_leaf(name)}"
            )
        file = split_name(typed[key])
        if file is None:
            raise UserError(f"{_PLACE}: {key}: expected FILE.py:{_leaf(name)}, got {typed[key]}")
        text = read_bytes(local(file[0], f"{_PLACE}: {key}"))
        if (got := sha256_of(text)) != sha256:
            raise UserError(
                f"{_PLACE}: {key}: expected the run's code with SHA-256 {sha256[:16]}..., got {file[0]} with "
                f"{got[:16]}..."
            )
        run_named(key, name, text)


def _leaf(name: str) -> str:
    found = split_name(name)
    return _shown(found[1] if found else name)


def _require_places(config: Config, typed: set[str], data: str | None, base: Path | None) -> None:
    """Raise UserError for a path of another machine that no argument replaces."""
    known = {*typed, *([] if data is None else [_PATH]), *([] if base is None else [_START])}
    options = {_PATH: "--data=PATH", _START: "--base=PATH"}
    for info in walk(config):
        usual = _PLACES.get(info.path)
        is_of_base = info.path == _TOKENIZER and base is not None and info.value == str(base / IMPORTED)
        if usual is not None and info.value not in usual and info.path not in known and not is_of_base:
            add = options.get(info.path, f"{info.path}=VALUE")
            raise UserError(
                f"{_PLACE}: the run has {info.path}={_shown(info.value)}, a place on its machine; add {add}"
            )


def _quiet(config: Config, *, saves: bool) -> Config:
    """Return the config without logs, samples and validations that do not affect weights. saves: with checkpoints."""
    chosen: dict[str, bool | int | float | str] = {
        "train.save": True,
        "train.save_policy": "every",
        "train.save_every": config.train.save_every if saves else config.train.steps,
        "train.stop_at": 0,
        "train.profile": "",
        "train.log_every": 1,
        "sample.every": 0,
    }
    if not config.train.patience and not config.eval.target_loss:
        chosen["eval.off"] = True
    for path, value in chosen.items():
        config = replace_path(config, path, value)
    return config


def _shown(value: Json) -> str:
    text = str(value)[:60]
    return text if text.isprintable() else ascii(text)
