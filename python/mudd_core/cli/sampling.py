"""The options of `sample`: prompts, number of samples, stop strings."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mudd_core.base.arguments.utf8 import utf8_fault
from mudd_core.base.errors import UserError
from mudd_core.base.regular_files import read_bytes
from mudd_core.cli.names import INTERACTIVE, KNOWN_WORDS, PROMPTS
from mudd_core.cli.reading import asked_to_stop, count_of
from mudd_core.cli.request import Request
from mudd_core.cli.text_writer import Writer, answer_lines, say
from mudd_core.config import Config, SampleConfig, split_words
from mudd_core.config.overrides import field_path
from mudd_core.config.schema import fields_of_all
from mudd_core.run.ranks.ranks import Ranks

if TYPE_CHECKING:
    from mudd_core.data.tokenizers.tokenizer import Tokenizer
    from mudd_core.engine.model import Model

STOP = "--stop"
OPTIONS = (*PROMPTS, "--num-samples", STOP)
_LENGTH = "sample.max_tokens"


@dataclass(frozen=True)
class Asked:
    """A request of `sample`: `count` samples for each prompt, each up to the first stop string."""

    prompts: tuple[str, ...]
    count: int
    stops: tuple[str, ...]
    interactive: bool

    @classmethod
    def of(cls, request: Request) -> Asked:
        """Read the options of a request and the files that they name; raise UserError if one cannot be read."""
        count = count_of(request)
        return cls(_prompts(request.options), count, _stops(request), INTERACTIVE in request.options)

    @classmethod
    def by_first(cls, request: Request, ranks: Ranks) -> Asked:
        """Read the options as `of` does, but on rank 0, the only rank with standard input."""
        found = ranks.from_first(lambda: dataclasses.asdict(cls.of(request)))
        return cls(tuple(found["prompts"]), found["count"], tuple(found["stops"]), found["interactive"])


def write_samples(
    asked: Asked,
    request: Request,
    config: Config,
    model: Model,
    tokenizer: Tokenizer,
    ranks: Ranks,
    on_token: Callable[[], None] = lambda: None,
    answering: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> int:
    """Print the requested samples, then notes on standard error; return 75 if a stop was requested.

    ranks: all of them generate each sample together; rank 0 prints it. on_token: called for each token. answering:
    returns a context manager around generation, which excludes waits for a user's input.
    """
    notes: dict[str, None] = {}
    note = notes.setdefault if ranks.first and _length_is_typed(request, config) else _ignored
    asked_to = asked_to_stop(ranks, 0)

    def stopped() -> bool:
        on_token()
        return asked_to()

    writer = Writer(model, tokenizer, config.sample, asked.stops, note, stopped, shown=ranks.first)
    if asked.interactive:
        answer_lines(writer, asked.count, notes, ranks, answering)
        return 75 if stopped() else 0
    prompts = asked.prompts if request.options.keys() & set(PROMPTS) else (config.sample.prompt,)
    ranks.together(lambda: _check(writer, prompts, request))
    with answering():
        for prompt in prompts:
            if not stopped():
                writer.write(prompt, asked.count)
    say(notes)
    return 75 if stopped() else 0


def _check(writer: Writer, prompts: Sequence[str], request: Request) -> None:
    """Raise UserError, with the line number, for a prompt that the model cannot continue."""
    for number, prompt in enumerate(prompts, 1):
        try:
            writer.check(prompt)
        except UserError as error:
            where = f" (line {number} of {request.options['--prompt-lines']})" if len(prompts) > 1 else ""
            raise UserError(f"{error}{where}") from error


def _ignored(text: str) -> None:
    """Ignore the note. The default length may be limited by the model's longest sequence."""


def _length_is_typed(request: Request, config: Config) -> bool:
    """Return True if the user set the length: on the command line, or by a value other than the config's default."""
    if config.sample.max_tokens != SampleConfig().max_tokens:
        return True
    infos = fields_of_all()
    overrides = split_words(request.words, config, KNOWN_WORDS, "sample")
    return any(field_path(item.path, infos, "sample") == _LENGTH for item in overrides)


def _prompts(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the prompt of --prompt (`-`: standard input) or --prompt-file, or the lines of --prompt-lines.

    A final line feed is removed. Raise UserError for input that is not UTF-8.
    """
    lines = options.get("--prompt-lines")
    typed, file = options.get("--prompt"), options.get("--prompt-file", lines)
    if file is None and typed != "-":
        return (typed or "",)
    name = "standard input" if file in (None, "-") else file
    try:
        data = sys.stdin.buffer.read() if name == "standard input" else read_bytes(Path(file or ""))
    except OSError as error:
        raise UserError(f"[arguments] the prompt in {name} cannot be read: {error.strerror}") from error
    text = data.decode("utf-8", "surrogateescape")
    if fault := utf8_fault(text):
        raise UserError(f"[arguments] the prompt in {name}: expected UTF-8 text, {fault}")
    text = text.removesuffix("\n")
    return (text,) if lines is None else tuple(line.removesuffix("\r") for line in text.split("\n"))


def _stops(request: Request) -> tuple[str, ...]:
    """Return the stop strings. Raise UserError for an empty one; print a note about one that spells a line feed."""
    for stop in request.stops:
        if not stop:
            raise UserError(f"[arguments] {STOP}: expected a non-empty string; leave the option out")
        if "\\n" in stop:
            print(
                f"note: {STOP}: '{stop}' has a backslash and an n; a line feed is typed {STOP}=$'\\n'",
                file=sys.stderr,
            )
    return tuple(request.stops)
