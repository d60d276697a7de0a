"""Writing text with a trained model: prompt to tokens, tokens to text as they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.config import SampleConfig

if TYPE_CHECKING:
    from mudd_core.data.tokenize import Tokenizer
    from mudd_core.engine.model import Model


# Control characters move the cursor or recolour a terminal; those of text stay.
_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_SHOWN = 160  # characters of a text on one line


def printable(text: str) -> str:
    """The text with its control characters escaped, for a terminal."""
    return text.translate(_ESCAPED)


def beginning_of(text: str) -> str:
    """The beginning of a text, in quotes and on one line, for a log."""
    line = " ".join(printable(text).split())
    return f'"{line[:_SHOWN]}{"..." if len(line) > _SHOWN else ""}"'


def write_text(
    model: Model,
    tokenizer: Tokenizer,
    prompt: str,
    settings: SampleConfig,
    write: Callable[[str], None],
    note: Callable[[str], None] = lambda text: None,
) -> str:
    """Generate behind the prompt, streaming through `write`; returns what was generated.

    An empty prompt begins a new document: the end-of-text token comes before it. Stops at end-of-text, and without
    settings.window=ring at the model's longest sequence; `note` gets a line where that is before settings.max_tokens.
    """
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"[sample] prompt: expected text in UTF-8: {error}") from error
    tokens = tokenizer.encode(prompt) if prompt else [tokenizer.eos_id]
    longest = model.config.max_seq_len
    room = longest - len(tokens)
    if room < 1:
        raise UserError(
            f"[sample] prompt: expected at most {longest - 1} tokens (the model's longest sequence is {longest}), "
            f"got {len(tokens)}"
        )
    text_of = tokenizer.stream()
    parts: list[str] = []
    generated = model.generate(
        tokens,
        max_tokens=settings.max_tokens if settings.window == "ring" else min(settings.max_tokens, room),
        temperature=settings.temperature,
        top_k=settings.top_k,
        top_p=settings.top_p,
        seed=settings.seed,
        ids_below=tokenizer.vocab_size,
        window=settings.window,
    )
    for token in generated:
        if token == tokenizer.eos_id:
            break
        parts.append(text_of(int(token)))
        write(parts[-1])
    else:
        if room < settings.max_tokens and settings.window == "stop":
            note(
                f"the model's longest sequence of {longest} tokens is full: {room} tokens behind a prompt of "
                f"{len(tokens)}, sample.max_tokens asked for {settings.max_tokens}; sample.window=ring goes on"
            )
    return "".join(parts)
