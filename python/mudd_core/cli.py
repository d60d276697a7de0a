"""The command line: `launch.py [command] --config=FILE [overrides]`.

This module only reads the words; each command is a function of cli_commands.py, each tool (with words of its own) a
module with main(words). Exit codes: 0 done, 2 bad
arguments, config or work directory, 65 damaged input, 70 internal error, 74 a required write failed,
75 stopped on request after saving, 76 diverged, 130 and 143 left at once on a second SIGINT or SIGTERM.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mudd_core.config import FAMILIES, Config, apply_overrides, check_config, read_config, split_words
from mudd_core.config.describe import field_help
from mudd_core.config.overrides import nearest
from mudd_core.errors import SaveError, UserError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # what a write to a full disk says
COMMANDS = {
    "train": "train, or resume what the work directory holds (the default)",
    "validate": "loss and bits per byte of the newest checkpoint on the held-out text",
    "sample": "write text with the newest checkpoint",
    "data": "build the token cache and say what is in it",
    "report": "what a work directory holds: config, losses, checkpoints",
}
# Commands that are not about one run: module with main(words) -> exit code, and what it does.
TOOLS: dict[str, tuple[str, str]] = {
    "import": (
        "mudd_core.interop.import_command",
        "a run out of a Hugging Face folder or another program's weights",
    ),
    "export": ("mudd_core.interop.export_command", "a run's weights as a Hugging Face folder"),
    "mup": (
        "mudd_core.tools.scaling.command",
        "check a parametrisation over widths, find the rate that transfers",
    ),
    "grow": ("mudd_core.tools.grow_command", "a TokenFormer with more slots out of a trained one"),
    "weights": (
        "mudd_core.tools.mix_weights",
        "what each block of a MUDDFormer reads of earlier states, as HDF5 and SVG",
    ),
    "bakeoff": (
        "mudd_core.tools.bakeoff.command",
        "train several families on the same text and compare them",
    ),
    "profile": ("mudd_core.tools.profile_command", "where the time of a training step goes"),
}
_ALIASES = {"validation": "validate", "valid": "validate", "eval": "validate", "generate": "sample"}
_OPTIONS = {
    "--config": ("FILE", "config file: a path, or a name looked up in configs/ (small.py, gpt2/tiny.py)"),
    "--mode": ("NAME", "the command, said as an option"),
    "--workdir": ("DIR", "where the run keeps its files; default runs/<config name>"),
    "--prompt": ("TEXT", "sample: the beginning of the text; default a new document"),
    "--step": ("N", "validate, sample: this checkpoint instead of the newest"),
    "--plan": ("", "train: print parameters, FLOPs, memory and time, and do nothing"),
    "--params": ("", "train: print the table of parameters, their roles, decay and rates, and do nothing"),
    "--help": ("", "this text"),
}
# Environment that changes what a run does; echoed when it starts.
# MUDD_EMULATE and MUDD_KILL_AT are for tests: README.md, docs/checkpoints.md.
ENVIRONMENT = (
    "MUDD_MAX_ISA", "MUDD_EMULATE", "MUDD_KILL_AT", "OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES",
    "GOMP_CPU_AFFINITY", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT",
)  # fmt: skip


@dataclass
class Request:
    """What the words ask for. config is None where no --config was given."""

    command: str = "train"
    config: Config | None = None
    words: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)

    @property
    def workdir(self) -> Path:
        """The work directory: --workdir, or runs/<config name>."""
        named = self.options.get("--workdir")
        path = Path(named) if named is not None else Path("runs") / self.required_config().name
        if any(len(os.fsencode(part)) > 255 for part in path.parts):
            raise UserError("[arguments] work directory: expected names of at most 255 bytes")
        return path

    def required_config(self) -> Config:
        """The checked config; UserError if none was given."""
        if self.config is None:
            raise UserError("[arguments] --config=FILE is missing, for example --config=small.py")
        return self.config


def usage(config: Config | None) -> str:
    """The text of --help: commands, options and every field: this config's, or the default of each family."""
    lines = ["usage: launch.py [command] --config=FILE [options] [section.field=value ...]", "", "commands:"]
    lines += [f"  {name:<10} {text}" for name, text in COMMANDS.items()]
    lines += [f"  {name:<10} {text}; {name} --help tells more" for name, (_, text) in TOOLS.items()]
    lines += ["", "options:"]
    for name, (value, text) in _OPTIONS.items():
        lines.append(f"  {name + ('=' + value if value else ''):<16} {text}")
    lines += [
        "",
        "A config file is Python code and runs with your rights; one that ends in .json runs nothing.",
        f"Environment: {', '.join(ENVIRONMENT)}.",
        "",
        "config fields with their default; set one by section.field=value, --config.section.field=value or",
        "--field value:",
        field_help(config or Config()),
    ]
    if config is None:
        others = (family() for name, family in FAMILIES.items() if name != Config().model.family)
        for model in others:
            lines += ["", f"with another family, {model.family}, the fields of model are:"]
            lines.append(field_help(Config(model=model), only="model."))
    return "\n".join(lines)


def _known_words() -> list[str]:
    return [*COMMANDS, *_ALIASES, *TOOLS, *_OPTIONS]


def _command(name: str) -> str:
    command = _ALIASES.get(name, name)
    if command not in COMMANDS:
        known = [*COMMANDS, *_ALIASES, *TOOLS]
        raise UserError(f"[arguments] unknown command '{name}'{nearest(name, known)}")
    return command


def _tool(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The command with words of its own that is asked for, as the first word or by --mode, and those words."""
    if words and words[0] in TOOLS:
        return words[0], list(words[1:])
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        value = value if equals else "".join(words[i + 1 : i + 2])
        if name == "--mode" and value in TOOLS:
            return value, [*words[:i], *words[i + (1 if equals else 2) :]]
    return None, list(words)


def parse(words: Sequence[str]) -> Request:
    """Commands and options out of the words, the rest as overrides on the config; raises UserError."""
    request, rest = Request(), list(words)
    if rest and rest[0] in (*COMMANDS, *_ALIASES):
        request.command = _command(rest.pop(0))
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        name = {"-h": "--help", "--max-tokens": "--config.sample.max_tokens"}.get(name, name)
        if name not in _OPTIONS:
            request.words.append(word)
            if (
                word.startswith("--")
                and not equals
                and rest
                and not rest[0].startswith("--")
                and "=" not in rest[0]
            ):
                request.words.append(rest.pop(0))  # its value: it must not be read as an option of ours
            continue
        if _OPTIONS[name][0] and not equals:
            if not rest:
                raise UserError(f"[arguments] {name}: expected {_OPTIONS[name][0]} behind it")
            value = rest.pop(0)
        request.options[name] = value
    if "--mode" in request.options:
        request.command = _command(request.options["--mode"])
    _load(request)
    return request


_NAMING = ("model.config_path", "model.name_or_path", "--model-config-name")  # the first that is given counts


def _named_by_model(request: Request) -> str | None:
    """The config that the original programs' own words name, e.g. model.name_or_path=gpt2; the words are used up."""
    named, rest, words = {}, [], list(request.words)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name.lstrip("+") not in _NAMING or not (equals or words):
            rest.append(word)
            continue
        named[name.lstrip("+")] = value if equals else words.pop(0)
    request.words = rest if named else request.words
    return next((named[name] for name in _NAMING if name in named and named[name] != "null"), None)


def _load(request: Request) -> None:
    file = request.options.get("--config")
    if file is None and (file := _named_by_model(request)) is not None:
        request.options["--config"] = file
    if file is None:
        if request.words and "--help" not in request.options:
            split_words(request.words, Config(), _known_words())  # names the word that is wrong, if one is
        return
    config = read_config(file)
    request.config = apply_overrides(config, split_words(request.words, config, _known_words()))
    check_config(request.config)


def main(words: Sequence[str]) -> int:
    """Run one command line; returns the exit code. Output that is lost on a full disk makes 74 of a 0."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")  # a letter that the terminal lacks is no reason to stop
    code = _run(words)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # else Python fails at exit, with 120
            if code == 0 and not isinstance(error, BrokenPipeError):
                code = SaveError.exit_code
    return code


def _run(words: Sequence[str]) -> int:
    try:
        tool, rest = _tool(words)
        if tool is not None:
            return int(importlib.import_module(TOOLS[tool][0]).main(rest))
        request = parse(words)
        if "--help" in request.options:
            print(usage(request.config))
            return 0
        from mudd_core import _core, cli_commands

        try:
            _core.isa()
        except ValueError as error:  # MUDD_MAX_ISA or MUDD_EMULATE is no level
            raise UserError(str(error)) from None
        return cli_commands.run(request)
    except KeyboardInterrupt:
        _tell("interrupted")
        return 130
    except BrokenPipeError:
        return 0
    except MemoryError as error:
        _tell(f"error: not enough memory ({error})")
        return 2
    except Exception as error:
        code = getattr(error, "exit_code", None)
        if isinstance(error, OSError) and error.errno in _FULL:
            code = SaveError.exit_code
        if code is None:
            _tell(f"{traceback.format_exc()}error: internal error: {type(error).__name__}: {error}")
            return 70
        _tell(f"error: {error}")
        return int(code)


def _tell(text: str) -> None:
    with contextlib.suppress(OSError):  # standard error may lie on the disk that is full
        print(text, file=sys.stderr)
