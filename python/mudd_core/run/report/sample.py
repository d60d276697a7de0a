"""Text generation with a trained model: tokenize the prompt, and write the tokens as text while they arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from mudd_core.base.arguments.utf8 import utf8_fault
from mudd_core.base.errors import UserError
from mudd_core.config import SampleConfig
from mudd_core.engine.generate import ring_positions

if TYPE_CHECKING:
    from mudd_core.data.tokenizers.tokenizer import Tokenizer
    from mudd_core.engine.model import Model


class StopTexts:
    """A filter that ends streamed text before the first complete stop string.

    It holds back only the end of the text that may be the start of a stop string.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found = False

    def take(self, piece: str) -> str:
        """Return the text that can be written after one more piece."""
        text = self._held + piece
        ends = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            self.found, self._held = True, ""
            return text[: min(ends)[1]]
        kept = len(text) - self._beginning(text)
        self._held = text[kept:]
        return text[:kept]

    def rest(self) -> str:
        """Return the text that is still held back, at the end of the sample."""
        held, self._held = self._held, ""
        return held

    def _beginning(self, text: str) -> int:
        """Return the length of the longest suffix of the text that is a proper prefix of a stop string."""
        lengths = (n for stop in self._stops for n in range(1, len(stop)) if text.endswith(stop[:n]))
        return max(lengths, default=0)


def prompt_ids(model: Model, tokenizer: Tokenizer, prompt: str, settings: SampleConfig) -> list[int]:
    """Return the token ids of a prompt. An empty prompt becomes BOS if settings.bos is set, else end-of-text.

    Raise UserError if the text is not UTF-8, if the prompt leaves no room in the model's longest sequence, or if
    settings.window=ring needs positions that the model does not have.
    """
    if fault := utf8_fault(prompt):
        raise UserError(f"[sample] prompt: expected UTF-8 text, {fault}")
    ids = tokenizer.encode(prompt, bos=settings.bos, special_tokens=settings.special_tokens)
    ids = ids or [tokenizer.eos_id]
    longest = model.config.max_seq_len
    if len(ids) >= longest:
        raise UserError(
            f"[sample] prompt: expected at most {longest - 1} tokens (the model's longest sequence is {longest}), "
            f"got {len(ids)}; shorten it"
        )
    try:
        ring_positions(model.config, len(ids) + settings.max_tokens, settings.window)
    except ValueError as error:
        raise UserError(f"[sample] {error}; leave sample.window=ring out") from error
    return ids


def write_text(
    model: Model,
    tokenizer: Tokenizer,
    prompt: str,
    settings: SampleConfig,
    write: Callable[[str], None],
    note: Callable[[str], None] = lambda text: None,
    stops: Sequence[str] = (),
    ended: Callable[[], bool] = lambda: False,
) -> str:
    """Generate text after the prompt as `pieces` does, pass each piece to `write`, and return the whole text."""
    parts: list[str] = []
    for piece in pieces(model, tokenizer, prompt, settings, note, stops, ended):
        parts.append(piece)
        write(piece)
    return "".join(parts)


def pieces(
    model: Model,
    tokenizer: Tokenizer,
    prompt: str,
    settings: SampleConfig,
    note: Callable[[str], None] = lambda text: None,
    stops: Sequence[str] = (),
    ended: Callable[[], bool] = lambda: False,
) -> Iterator[str]:
    """Yield the text after the prompt, one piece for each token; a piece may be empty.

    An empty prompt starts a new document, after the end-of-text token. Generation stops at end-of-text, before the
    first stop string, or when ended() is true after a token. Without settings.window=ring it also stops at the model's
    longest sequence; `note` gets a message if that is before settings.max_tokens.
    """
    tokens = prompt_ids(model, tokenizer, prompt, settings)
    longest = model.config.max_seq_len
    room = longest - len(tokens)
    text_of, stop = tokenizer.stream(tokens if prompt else ()), StopTexts(stops)
    ends = {tokenizer.eos_id, *tokenizer.stop_ids}
    generated = model.generate(
        tokens,
        max_tokens=settings.max_tokens if settings.window == "ring" else min(settings.max_tokens, room),
        temperature=settings.temperature,
        top_k=settings.top_k,
        top_p=settings.top_p,
        seed=settings.seed,
        ids_below=tokenizer.ids_below,
        window=settings.window,
    )
    for token in generated:
        if token in ends:
            break
        yield stop.take(text_of(int(token)))
        if stop.found or ended():
            break
    else:
        if room < settings.max_tokens and settings.window == "stop":
            way_out = "" if model.config.positions_end else "; set sample.window=ring to continue"
            note(
                f"stopped at the longest sequence of the model, {longest} tokens: {room} new tokens "
                f"after a prompt of {len(tokens)}, sample.max_tokens={settings.max_tokens}{way_out}"
            )
    held = "" if stop.found else stop.take(text_of.end())
    if held := held + stop.rest():
        yield held
