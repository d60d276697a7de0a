"""Retype a command line: bare arguments become options, and settings of other programs become fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.cli.foreign_values import (
    RELATIVE,
    blend_words,
    field_value,
    is_true,
    is_weight,
    option_value,
    relative_words,
    start_value,
)
from mudd_core.cli.names import COMMANDS, OF_TUNE, OPTIONS, READING
from mudd_core.cli.request import Request
from mudd_core.config import Config, apply_overrides, read_config, split_words
from mudd_core.config.arguments import Argument, Arguments, argument
from mudd_core.config.config_files import is_config
from mudd_core.config.fields import FieldInfo, walk
from mudd_core.config.foreign import ANEW, NOTES, OUTPUTS, SCRIPTS, SETTINGS
from mudd_core.config.mix import MIX
from mudd_core.config.overrides import field_path
from mudd_core.config.schema import fields_of_all
from mudd_core.config.suggest import foreign_name
from mudd_core.run.store.saved_run import is_run, run_and_step

_START, _DROPOUTS = (
    "start.load_parameters_path",
    ("model.embd_dropout", "model.attn_dropout", "model.resid_dropout"),
)
# The expected values of settings some of whose values have no equivalent.
_WANTED = {
    "data.path": "expected a text file or a folder of text files, ",
    MIX: "expected pairs of a weight and a prefix of .idx and .bin files, ",
    "data.eval_path": "expected a text file or a folder of text files, ",
    "--config": "expected a config (the command import takes weights), ",
    "tune.method": "expected lora, full or last:N, ",
    "train.micro_batch_size": "expected passes that divide train.batch_size, ",
    "start.load_parameters_path": "expected a run or a safetensors file (the command import takes others), ",
}
_OTHER_VALUES = (
    "train.precision",
    "log.wandb",
)  # fields whose names other programs use with other values
_BATCH, _TEXT = "train.batch_size", "data.path"
_READS = "it is an option of training; this command only reads a run"


@dataclass
class Retyped:
    """Options and arguments in mudd_core's form. whole: True if every argument was converted.

    told: a remark about each converted argument. bare: the first argument without an option. problem: the reason why a
    value has no equivalent. command: the command that another program's option requests. reads: the command only reads
    a run.
    """

    options: dict[str, str]
    words: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    bare: str = ""
    whole: bool = True
    problem: str = ""
    command: str = ""
    reads: bool = False

    def add(self, option: str, ours: str, note: str = "") -> None:
        """Add the remark about a setting that has an equivalent."""
        self.told.append(f"'{option}' is {ours} here{f' ({note})' if note else ''}")

    def note(self, name: str) -> str:
        """Return the note about a setting; empty if it has none."""
        note = NOTES.get(name, "")
        return _READS if self.reads and note == ANEW else note

    def leave_out(self, option: str, why: str) -> None:
        """Add the remark about an argument that is not needed."""
        self.told.append(f"'{option}' is left out ({why})")

    def fail(self, option: str, ours: str, value: str, info: FieldInfo | None, note: str = "") -> bool:
        """Record that a value has no equivalent; return False."""
        wanted = f"{note}, " if note else ""
        wanted = (
            f"expected one of {', '.join(info.choices)}, " if info is not None and info.choices else wanted
        )
        wanted = _WANTED.get(ours, wanted)
        self.problem = self.problem or f"'{option}' is {ours} here: {wanted}got '{value}'"
        return False


def retyped(request: Request) -> Retyped:
    """Convert the arguments of a request to mudd_core's form."""
    result = Retyped(dict(request.options), reads=request.command in READING)
    named = request.options.get("--config")
    config = _config_at(named) if named else None
    later = list[tuple[str, str, str]]()  # settings that are relative to values of other arguments
    infos = list(walk(config)) if config is not None else fields_of_all()
    if request.command == "tune":
        infos = [info for info in infos if info.path not in OF_TUNE]
    arguments = Arguments(request.words)
    for item in arguments:
        name = foreign_name(item.name, infos) if _is_setting(item) else None
        if _is_bare(item):
            result.whole &= _place(item, arguments, result, infos) or _is_text(item, request, result)
        elif name is None or _path(item, infos) is not None:
            _keep(item, arguments, result, infos)
        else:
            value = item.value if item.value is not None else arguments.plain_value() or ""
            if SETTINGS[name] in (_TEXT, MIX) and is_weight(value):
                result.whole &= _blend(item, value, arguments, result)
            elif name in RELATIVE:
                later.append((item.option, name, value))
            else:
                ours = _target(name, request.command)
                takers = OPTIONS[ours][2] if ours in OPTIONS and request.command != "tune" else ()
                if takers and (result.command or request.command) not in takers:
                    result.problem = (
                        f"'{item.option}' is {ours} here, an option of the command {' or '.join(takers)}"
                    )
                result.whole &= not result.problem and _translate(
                    item.option, name, ours, value, result, infos
                )
    config = config if config is not None else _config_at(result.options.get("--config", "")) or Config()
    for option, name, value in later:
        result.whole &= _relate(option, name, value, result, config)
    return result


def _blend(item: Argument, weight: str, arguments: Arguments, result: Retyped) -> bool:
    """Convert Megatron-LM's weights and prefixes after one option; return False for other values."""
    values = [weight]
    while (value := arguments.plain_value()) is not None:
        values.append(value)
    words = blend_words(values)
    if words is None:
        return result.fail(item.option, MIX, " ".join(values), None)
    result.words += words
    result.add(item.option, MIX)
    return True


def _target(name: str, command: str) -> str:
    """Return the field or option for another program's setting."""
    if command == "report" and name in OUTPUTS:
        return "--html"
    if command in ("sample", "chat") and SETTINGS[name] == "train.seq_len":
        return "sample.max_tokens"
    return OF_TUNE.get(SETTINGS[name], SETTINGS[name]) if command == "tune" else SETTINGS[name]


def _config_at(name: str) -> Config | None:
    try:
        return read_config(name) if name else None
    except UserError:
        return None


def _is_bare(item: Argument) -> bool:
    return not item.switch and item.value is None and item.mark in ("", "-")


def _is_setting(item: Argument) -> bool:
    return item.mark in ("", "-", "--", "+", "++")


def _path(item: Argument, infos: Sequence[FieldInfo]) -> str | None:
    """Return the field that an argument sets."""
    return field_path(item.name, infos)


def _place(item: Argument, arguments: Arguments, result: Retyped, infos: Sequence[FieldInfo]) -> bool:
    """Convert a bare argument to an option; return False if its meaning is unknown."""
    result.bare = result.bare or item.raw
    if item.mark == "" and "--config" not in result.options and is_config(item.raw):
        result.options["--config"] = item.raw
        return True
    if item.mark == "" and "--workdir" not in result.options and is_run(item.raw):
        result.options["--workdir"] = run_and_step(item.raw)[0]
        return True
    if SCRIPTS.get(item.raw.rpartition("/")[2]) in COMMANDS:
        result.leave_out(item.raw, "mudd_core runs in its place")
        result.command = SCRIPTS[item.raw.rpartition("/")[2]].replace("train", "")
        return True
    path, name = field_path(item.name, infos), foreign_name(item.name, infos)
    if path is None and name is None:
        return False
    value = arguments.plain_value()
    if path is None and name in NOTES and not SETTINGS[name]:
        value = value or ""
    if value is None:
        return False
    if path is None and name is not None:
        return _translate(item.raw, name, SETTINGS[name], value, result, infos)
    result.words.append(f"{path}={value}")
    return True


def _is_text(item: Argument, request: Request, result: Retyped) -> bool:
    """Convert the name of an existing file to data.path for a command that trains; return False for other arguments."""
    if request.command not in ("train", "data") or item.mark or not Path(item.raw).is_file():
        return False
    if any(argument(word).name == _TEXT for word in (*request.words, *result.words)):
        return False
    result.words.append(f"{_TEXT}={item.raw}")
    result.add(item.raw, _TEXT)
    return True


def _keep(item: Argument, arguments: Arguments, result: Retyped, infos: Sequence[FieldInfo]) -> None:
    """Keep an argument as the user wrote it, but convert another program's value of a field."""
    path = _path(item, infos)
    info = next((one for one in infos if one.path == path), None)
    if info is None or path not in _OTHER_VALUES:
        result.words.append("=".join(arguments.typed(item) if item.switch else [item.raw]))
        return
    typed = item.value if item.value is not None else arguments.plain_value() or ""
    ours = None if typed in info.choices else field_value(info, item.name, typed)
    if ours is None:
        result.words += [item.raw, typed] if item.switch and typed else [item.raw]
        return
    result.words.append(f"{path}={ours}")
    result.add(typed or item.option, ours if typed else f"{path}={ours}")


def _translate(
    option: str, name: str, ours: str, value: str, result: Retyped, infos: Sequence[FieldInfo]
) -> bool:
    """Add the equivalent of a setting, which is our field or option; return False if its value has none."""
    note = result.note(name) if ours == SETTINGS[name] else ""
    if not ours:
        return _leave_out(option, name, value, result, infos)
    info = next((one for one in infos if one.path == ours), None)
    if ours.startswith("--"):
        found = option_value(ours, name, value)
    elif name == "init_from":
        found = start_value(value)
    else:
        found = None if info is None else field_value(info, name, value)
    if found is None:
        return result.fail(option, ours, value, info, note)
    if found and ours == "--workdir" and (other := result.options.get(ours, "")) not in ("", found):
        return result.fail(option, ours, value, None, f"'{ours}={other}' is typed too; leave one out")
    if ours in OPTIONS and not OPTIONS[ours][0]:  # a switch
        if is_true(value) is not False:
            result.options[ours] = ""
            result.add(option, ours, note)
            return True
        found = ""
    if not found:
        result.leave_out(option, note or "it is not needed")
        return True
    if ours.startswith("--"):
        result.options[ours] = found
    else:
        result.words.append(f"{ours}={found}")
    result.add(option, ours, note)
    return True


def _leave_out(option: str, name: str, value: str, result: Retyped, infos: Sequence[FieldInfo]) -> bool:
    """Leave out a setting without an equivalent; gpt2's dropout becomes three fields.

    Return False if no note explains it.
    """
    dropouts = [info.path for info in infos if info.path in _DROPOUTS] if name == "dropout" else []
    if dropouts:
        rate = "0" if is_true(value) is False else value
        result.words += [f"{path}={rate}" for path in dropouts]
        result.add(option, ", ".join(dropouts))
        return bool(value)
    if name in NOTES:
        result.leave_out(option, result.note(name))
    if name == "eval_only" and is_true(value):
        result.command = "validate"
    return name in NOTES


def _relate(option: str, name: str, value: str, result: Retyped, config: Config) -> bool:
    """Add the equivalent of a setting that is relative to others; return False if its value has none."""
    infos = list(walk(config))
    try:
        config = apply_overrides(config, split_words(result.words, config))
    except UserError:
        return False
    batches = [word for word in result.words if field_path(argument(word).name, infos) == _BATCH]
    words = relative_words(name, value, config, typed_batch=bool(batches))
    if words is None:
        return result.fail(option, SETTINGS[name], value, None, NOTES.get(name, ""))
    if not words:
        result.leave_out(option, "it is not needed")
        return True
    if len(words) > 1:  # the batch of all accumulated passes replaces the batch of one pass
        result.words = [word for word in result.words if word not in batches]
    result.words += words
    result.add(option, " and ".join(argument(word).name for word in words), NOTES.get(name, ""))
    return True
