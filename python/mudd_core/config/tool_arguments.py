"""Parse the arguments of a tool, which is a command with its own options. Help fits one screen."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn, TypeVar

from mudd_core.base.errors import UserError
from mudd_core.base.show.terminal import WIDTH, folded
from mudd_core.base.surroundings import typed_program
from mudd_core.config.arguments import Argument, Arguments, argument, is_plain
from mudd_core.config.fields import FieldInfo
from mudd_core.config.foreign import OUTPUTS
from mudd_core.config.overrides import field_path
from mudd_core.config.schema import fields_of_all
from mudd_core.config.suggest import nearest_option
from mudd_core.config.values import KINDS, LARGEST_COUNT, mismatch, number, whole

Number = TypeVar("Number", int, float)

_RUN = "runs/small"
# Placeholder in messages for a missing required option.
_EXAMPLES = {
    "--config": "--config=small.py",
    "--recipes": "--recipes=small.py",
    "--to": "--to=exported",
    "--from": "--from=runs/small",
    "--workdir": "--workdir=runs/new",
    "--base": "--base=FOLDER",
    "--data": "--data=chat.jsonl",
    "PATH": "FOLDER",
    "check|transfer": "check",
    "bash|zsh": "bash",
    "RUN": _RUN,
    "EXPORT": "FOLDER",
}
_REQUIRED = "the following arguments are required: "  # the start of argparse's message
FIELDS = "Other arguments set fields of the config, like {example}; `{program} --help=all` lists them."


def whole_number(low: int | None = None, high: int | None = None) -> Callable[[str], int]:
    """Return an argparse type for integers within bounds, including 1e3 and 1_000."""

    def read(text: str) -> int:
        found = whole("", text, low, high)
        if abs(found) > LARGEST_COUNT:
            raise mismatch("", f"{KINDS[int]} of at most {LARGEST_COUNT}", text)
        return found

    return _argument(read)


def _argument(read: Callable[[str], Number]) -> Callable[[str], Number]:
    """Return the reader as an argparse type; argparse adds the option's name to its error."""

    def typed(text: str) -> Number:
        try:
            return read(text)
        except UserError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return typed


positive_number = _argument(partial(number, "", above=0))
fraction = _argument(partial(number, "", low=0, below=1))


# The options with the file or folder that a tool writes; a tool has one of them.
_TARGETS = ("--to", "--out", "--html")


def _hint(item: Argument, infos: Sequence[FieldInfo], own: Sequence[str]) -> str:
    """Return the suggestion for an unknown option. own: the options of the tool."""
    targets = [option for option in _TARGETS if option in own and item.key in OUTPUTS]
    return f"; did you mean '{targets[0]}'?" if targets else nearest_option(f"--{item.name}", infos, own)


class ToolArguments(argparse.ArgumentParser):
    """A parser that raises UserError, with a suggestion for a misspelt option."""

    def __init__(self, tool: str, text: str, *, fields: str = "", run: str = "") -> None:
        """Create the parser. tool: name of the command. text: its description. fields: an example override, if it
        accepts any.

        run: the option whose value may be passed without the option, such as the folder of a run.
        """
        called = shlex.join(typed_program())
        note = FIELDS.format(example=fields, program=called) if fields else ""
        super().__init__(
            prog=f"{called} {tool}",
            description=folded(text.replace("python3 launch.py", called)),
            epilog=folded(note),
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
                prog, max_help_position=22, width=WIDTH
            ),
            allow_abbrev=False,
        )
        self._tool, self._takes_fields, self._run = tool, bool(fields), run
        self._typed: list[str] = []
        self._job: Sequence[str] = ()
        if run:
            self.add_argument(
                "--trust-code",
                action="store_true",
                help="run the Python files of a run that was not started on this machine; read them first",
            )

    def read(self, words: Sequence[str], job: Sequence[str] = ()) -> tuple[argparse.Namespace, list[str]]:
        """Return (options, overrides of config fields); raise UserError for any other argument.

        job: options for the ranks of the command, which the suggested command repeats.
        """
        self._job = job
        options, rest = self.parse_known_args(self._with_run(list(words)))
        infos, own = fields_of_all(), self.own_options()
        for item in map(argument, rest):
            if item.mark == "--" and field_path(item.name, infos) is None:
                hint = _hint(item, infos if self._takes_fields else [], own)
                self.error(f"unknown option '--{item.name}'{hint}")
        return options, rest

    def options(self, words: Sequence[str]) -> argparse.Namespace:
        """Return the options; raise UserError for any other argument."""
        options, rest = self.parse_known_args(list(words))
        if rest:
            item = argument(rest[0])
            if is_plain(item):
                self.error(f"unexpected argument '{rest[0]}'")
            self.error(f"unknown option '{rest[0]}'{_hint(item, [], self.own_options())}")
        return options

    def _with_run(self, words: list[str]) -> list[str]:
        """Return the arguments, with the option inserted before a bare folder; raise UserError for a bare config."""
        self._typed = words
        arguments, found, given = Arguments(words), list[str](), False
        for item in arguments:
            action = self._option_string_actions.get(item.option)
            if item.value is None and action is not None and action.nargs != 0:
                found += [item.raw, *([] if (value := arguments.value()) is None else [value])]
            elif item.switch or item.value is not None or item.mark or not self._run or given:
                found += arguments.typed(item) if item.switch and action is None else [item.raw]
            else:
                given = True
                found.append(self._as_option(item.raw, words))
        return words if any(argument(word).option == self._run for word in words) else found

    def _as_option(self, word: str, words: Sequence[str]) -> str:
        """Return the argument as the value of its option; raise UserError with the whole command for a config."""
        from mudd_core.config.config_files import is_config

        if not is_config(word):
            return f"{self._run}={word}"
        line = self._command([f"--config={word}" if one == word else one for one in words])
        raise UserError(f"[{self._tool}] '{word}' is neither an option nor name=value; type: {line}")

    def _command(self, words: Sequence[str]) -> str:
        return shlex.join([*typed_program(), *self._tool.split(), *words, *self._job])

    def own_options(self) -> list[str]:
        """Return the tool's own options, without config fields."""
        return [name for action in self._actions for name in action.option_strings if name[:2] == "--"]

    @property
    def place(self) -> str:
        """The place in messages: the command in brackets."""
        return f"[{self._tool}]"

    def require(self, option: str) -> NoReturn:
        """Raise UserError for a missing option, with the whole command."""
        self.error(f"{_REQUIRED}{option}")

    def _missing_run(self, missing: Sequence[str]) -> list[str]:
        """Return an example run, if the command needs a run and its arguments name neither a run nor a config."""
        typed = map(argument, self._typed)
        named = any(item.option in ("--config", self._run) or is_plain(item) for item in typed)
        return [] if named or not self._run or {"--config", "RUN", self._run} & set(missing) else [_RUN]

    def _with_config(self, missing: Sequence[str]) -> str | None:
        """Return the whole command if only --config is missing and a bare argument is the name of a config."""
        from mudd_core.config.config_files import is_config

        if list(missing) != ["--config"]:
            return None
        bare = [word for word in self._typed if is_plain(argument(word)) and is_config(word)]
        return (
            self._command([f"--config={one}" if one in bare[:1] else one for one in self._typed])
            if bare
            else None
        )

    def _with_target(self, missing: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return (other arguments, --to) if --to is missing, and a second folder or --out was passed instead."""
        typed = list(self._typed)
        if list(missing) != ["--to"]:
            return typed, []
        for i, item in enumerate(map(argument, typed)):
            bare = is_plain(item) and item.mark == "" and i > 0
            if bare and not argument(typed[i - 1]).switch:
                return typed[:i] + typed[i + 1 :], [f"--to={item.raw}"]
            if item.key in OUTPUTS and item.value:
                return typed[:i] + typed[i + 1 :], [f"--to={item.value}"]
        return typed, []

    def error(self, message: str) -> NoReturn:
        """Raise UserError with the message, and the whole command or a hint to --help."""
        _, is_missing, text = message.partition(_REQUIRED)
        if is_missing:
            names = text.split(", ")
            message = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} missing"
            if _EXAMPLES.keys() >= set(names):
                if (line := self._with_config(names)) is not None:
                    raise UserError(f"[{self._tool}] {message}; type: {line}")
                typed, target = self._with_target(names)
                examples = target or [*self._missing_run(names), *(_EXAMPLES[name] for name in names)]
                line = self._command([*typed, *examples])
                raise UserError(f"[{self._tool}] {message}; type: {line}")
        called = shlex.join([*typed_program(), *self._tool.split(), "--help"])
        raise UserError(f"[{self._tool}] {message.removeprefix('argument ')}; {called} shows the options")
