"""Answers that need no command: help, usage, version. No config is loaded."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from mudd_core import __version__
from mudd_core.base.packages import pages
from mudd_core.base.show.terminal import folded
from mudd_core.base.surroundings import typed_program
from mudd_core.cli.names import COMMANDS, GROUPS, JOB_OPTIONS, OPTIONS, TOOLS, is_optional

CODE = "--explain-error"
WRITING = 'sample --config=small.py --prompt "def "'
# The line of another command names these.
_HIDDEN = (
    *("teach", "sweep", "race", "evaluate", "data show", "data convert", "data inspect"),
    *("average", "verify", "diff", "commbench", "scale", "slurm"),
)
_OF_SAMPLE = (  # options of sample; validate also has --step
    *("--prompt", "--prompt-file", "--prompt-lines", "--interactive", "--num-samples", "--stop"),
    "--step",
)
_OF_TRAIN = ("--params", "--explain", *JOB_OPTIONS, "--devices", "--verbose", "--node-memory")
_OF_CHAT = ("--system", "--no-think", "--template")
_ELSEWHERE = (
    "--mode",
    "--trust-code",
    "--version",
    CODE,
    "--split",
    "--html",
    "--json",
    "--spikes",
    "--tokenizer",
    "--average",
)  # on other lines


def answer(words: Sequence[str]) -> str | None:
    """Return the help, usage or version if there is at most one argument and it requests these; None otherwise."""
    if not words:
        return short_usage()
    if words[0] in ("help", "--help", "-h"):
        return main_help()
    return version() if words[0] in ("--version", "-V") else None


def version() -> str:
    """Return the text of --version."""
    return f"mudd_core {__version__}"


def short_usage() -> str:
    """Return the text that is printed without arguments."""
    called = shlex.join(typed_program())
    lines = [
        f"usage: {called} [command] --config=FILE [options] [section.field=value ...]",
        "",
        "Train a small model (about two minutes), write text with it, see what a larger one needs:",
        f"  {called} --config=tiny.py",
        f'  {called} sample --config=tiny.py --prompt "def "',
        f"  {called} --config=small.py --plan",
        "",
        f"All commands and options: {called} --help",
    ]
    return "\n".join(lines)


def main_help() -> str:
    """Return the help of the program: commands, options, examples."""
    called = shlex.join(typed_program())
    lines = [
        f"usage: {called} [command] --config=FILE [options] [section.field=value ...]",
        "",
        "Trains language models on CPUs. The same command resumes a run that was stopped.",
        "",
        "commands:",
        *command_lines(),
        "",
        "options:",
        *option_lines(
            name for name in OPTIONS if name not in (*_OF_TRAIN, *_OF_SAMPLE, *_OF_CHAT, *_ELSEWHERE)
        ),
        f"  train: {' '.join(_OF_TRAIN)}",
        f"  sample: {' '.join(_OF_SAMPLE)}",
        f"  chat: {' '.join(_OF_CHAT)} --tokenizer --step --average; report: --html --json --spikes",
        "  validate: --split --step --average; all commands: --mode --trust-code --version --explain-error",
        "",
        *(f"example:{line[1:]}" for line in example_lines((WRITING,))),
        "",
        folded(
            "Set a field of the config with train.steps=100, --config.train.steps=100 or --steps 100. A config file "
            "is Python code and runs with your rights; a file that ends in .json runs no code."
        ),
        f"Environment: MUDD_MAX_ISA, OMP_NUM_THREADS and others; all pages: {pages()}",
    ]
    return "\n".join(lines)


def command_lines() -> list[str]:
    """Return a line for each command in its group."""
    abouts = {**COMMANDS, **{name: about for name, (_, about) in TOOLS.items()}}
    lines = []
    for group, names in GROUPS.items():
        shown = [name for name in names if name not in _HIDDEN]
        labels = [group, *[""] * (len(shown) - 1)]
        lines += [
            f"  {label:<11}  {name:<10} {abouts[name]}" for label, name in zip(labels, shown, strict=True)
        ]
    return lines


def group_lines() -> list[str]:
    """Return a line for each group with the names of its commands."""
    return [f"  {group:<11}  {', '.join(names)}" for group, names in GROUPS.items()]


def option_lines(names: Iterable[str]) -> list[str]:
    """Return a help line for each of these options."""
    shown = [(name + _value_of(name), OPTIONS[name][1]) for name in names]
    width = max((len(name) for name, _ in shown), default=0)
    return [f"  {name:<{width}} {text}" for name, text in shown]


def _value_of(option: str) -> str:
    """Return the syntax of an option's value: =FILE, [=FILE] if it is optional, or an empty string."""
    value = OPTIONS[option][0]
    return f"[={value.strip('[]')}]" if is_optional(option) else f"={value}" if value else ""


def example_lines(arguments: Iterable[str]) -> list[str]:
    """Return an example command for each of these argument lists."""
    return [f"  {shlex.join(typed_program())} {line}" for line in arguments]
