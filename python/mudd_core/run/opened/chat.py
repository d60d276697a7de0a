"""Answers of a model to the messages of a conversation, rendered by a chat template."""

from __future__ import annotations

import bisect
import re
import weakref
from collections.abc import Callable, Iterator, Sequence

from mudd_core.base.errors import UserError
from mudd_core.base.surroundings import is_command_line
from mudd_core.base.types import JsonObject
from mudd_core.config import SampleConfig
from mudd_core.data.chat.counted import TOO_LONG, RefusedError
from mudd_core.data.chat.renderer import Renderer, bound_for
from mudd_core.data.chat.templates import ChatTemplate
from mudd_core.data.chat.turn_end import turn_end
from mudd_core.data.tokenizers.tokenizer import JsonTokenizer, Tokenizer, WithPlaces
from mudd_core.engine.generate import sampler
from mudd_core.engine.model import Model
from mudd_core.engine.prefix_cache import PrefixCache
from mudd_core.run.opened.chat_messages import SYSTEM
from mudd_core.run.opened.chat_template import template_remedy
from mudd_core.run.report.sample import StopTexts

THINKING = "enable_thinking"  # the variable of Qwen3's and other templates
_QUESTION, _ANSWER = "Xq", "Yz"  # strings that occur in no template
_RESERVED = 4  # an answer has at least this fraction of the model's longest sequence: 1 / _RESERVED


class Chat:
    """A model, its tokenizer and a chat template, which answer the last message of a conversation.

    note: called with a line for the user, once for each kind. The keys and values of the ids that a conversation has in
    common with the previous one are not computed again (PrefixCache).
    """

    def __init__(
        self, model: Model, tokenizer: Tokenizer, template: ChatTemplate, note: Callable[[str], None]
    ) -> None:
        self._model, self._tokenizer, self._template = model, tokenizer, template
        self._reader = tokenizer.reading_names() if isinstance(tokenizer, JsonTokenizer) else tokenizer
        self._note, self._noted = note, set[str]()
        self._cache = PrefixCache(model)
        self._renderer: Renderer | None = None
        self._hidden = _special_ids(tokenizer, template)
        self._require_messages()
        self._ends, self._stops = self._ends_of_turn()

    @property
    def longest(self) -> int:
        """The most tokens of a conversation with its answer: the model's longest sequence."""
        return self._model.config.max_seq_len

    def variables(self, enable_thinking: bool | None) -> JsonObject:
        """Return the variables of the template. Raise UserError if it does not have the one that is set."""
        if enable_thinking is None:
            return {}
        source = re.sub(r"\{#.*?#\}", "", self._template.source, flags=re.DOTALL)
        if not re.search(rf"\b{THINKING}\b", source):
            option = "--no-think" if is_command_line() else THINKING
            raise UserError(
                f"[chat] {option}: expected a chat template with the variable {THINKING}, and {self._template.name} "
                "does not have it; leave it out"
            )
        return {THINKING: enable_thinking}

    def check(self, system: Sequence[JsonObject], variables: JsonObject) -> None:
        """Raise UserError if the template cannot render a first message. system: the messages before it."""
        self.prompt([*system, {"role": "user", "content": _QUESTION}], 1, variables)

    def pieces(
        self,
        messages: Sequence[JsonObject],
        settings: SampleConfig,
        variables: JsonObject,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Iterator[str]:
        """Yield the answer in whole characters, one piece for each token; a piece may be empty.

        Special tokens have no text here, as with skip_special_tokens of transformers. The answer ends at the end of
        its turn, when stopped() is true after a token, after settings.max_tokens, or at the model's longest sequence.
        Raise UserError if the template rejects the messages, or if they are too long.
        """
        prompt = self.prompt(messages, settings.max_tokens, variables)
        room = self.longest - len(prompt)
        sample = sampler(
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            seed=settings.seed,
            ids_below=self._tokenizer.ids_below,
        )
        text_of, stop = self._tokenizer.stream(prompt), StopTexts(self._stops)
        for token in self._cache.tokens(prompt, sample, min(room, settings.max_tokens), stopped):
            if token in self._ends:
                break
            yield stop.take("" if token in self._hidden else text_of(token))
            if stop.found or stopped():
                break
        else:
            if not stopped():
                self._say_limit(room, settings.max_tokens)
        held = "" if stop.found else stop.take(text_of.end())
        if held := held + stop.rest():
            yield held

    def prompt(self, messages: Sequence[JsonObject], max_tokens: int, variables: JsonObject) -> list[int]:
        """Return the ids of the messages with the prompt for the next answer.

        The oldest turns after the system message are left out until there is room for the answer. The room is
        max_tokens, or a quarter of the model's longest sequence if that is less.
        """
        limit = self.longest - min(max_tokens, self.longest // _RESERVED)
        head = next((at for at, one in enumerate(messages) if one["role"] not in SYSTEM), len(messages))
        users = [at for at in range(head + 1, len(messages)) if messages[at]["role"] == "user"]
        starts = [head, *users]
        found = dict[int, list[int] | None]()

        def ids_from(number: int) -> list[int] | None:
            if number not in found:
                found[number] = self._ids([*messages[:head], *messages[starts[number] :]], variables)
            return found[number]

        def fits(number: int) -> bool:
            ids = ids_from(number)
            return ids is not None and len(ids) <= limit

        last = len(starts) - 1
        first = 0 if fits(0) else bisect.bisect_left(range(1, last), True, key=fits) + 1 if last else 0
        ids = ids_from(first)
        if ids is None or len(ids) >= self.longest:
            size = "more" if ids is None else f"{len(ids)}"
            raise UserError(
                f"[chat] messages: expected at most {self.longest - 1} tokens in the last message and the system "
                f"message (the model's longest sequence is {self.longest}), got {size}; shorten them"
            )
        if first:
            self._say(
                "the conversation is longer than the model's longest sequence, "
                f"{self.longest} tokens; its oldest turns are left out"
            )
        return ids

    def _ids(self, messages: Sequence[JsonObject], variables: JsonObject) -> list[int] | None:
        """Return the ids of the rendered messages; None if the text has far too many characters."""
        try:
            text = self._render(messages, variables)
        except RefusedError as error:
            if error.kind == TOO_LONG:
                return None
            raise UserError(
                f"[chat] {self._template.name}: {error}{self._without_system(messages, variables)}"
            ) from None
        if isinstance(self._reader, WithPlaces):
            [(ids, _)] = self._reader.encode_with_places([text])
            return [int(one) for one in ids]
        return self._reader.encode(text, bos=False)

    def _without_system(self, messages: Sequence[JsonObject], variables: JsonObject) -> str:
        """Return the remedy for rejected messages if the template renders them without the system message."""
        others = [one for one in messages if one["role"] not in SYSTEM]
        if len(others) == len(messages):
            return ""
        try:
            self._render(others, variables)
        except RefusedError:
            return ""
        named = "--system" if is_command_line() else "the system message"
        return f"; leave {named} out, and start the first message of the user with its text"

    def _require_messages(self) -> None:
        """Raise UserError for a template that renders the same text for different messages."""
        try:
            texts = {self._render([{"role": "user", "content": one}], {}) for one in (_QUESTION, _ANSWER)}
        except RefusedError:
            return  # the messages of the user may be accepted
        if len(texts) == 1:
            raise UserError(
                f"[chat] {self._template.name}: expected a chat template that renders the messages, got one with the "
                f"same text for different messages; {template_remedy()}"
            )

    def _render(self, messages: Sequence[JsonObject], variables: JsonObject, *, asks: bool = True) -> str:
        if self._renderer is None:
            self._renderer = Renderer(self._template, "all", bound_for(self.longest))
            weakref.finalize(self, self._renderer.close)
        try:
            return self._renderer.prompt(messages, variables, asks=asks)
        except UserError:  # the process has ended; the next message starts another one
            self._renderer.close()
            self._renderer = None
            raise

    def _ends_of_turn(self) -> tuple[set[int], tuple[str, ...]]:
        """Return the tokens that end an answer; if the template has no such token, also the string that ends it."""
        ends = {self._tokenizer.eos_id, *self._tokenizer.stop_ids}
        found = turn_end(self._template, self._reader)
        if found is not None and found.token is not None:
            return {*ends, found.token}, ()
        if found is not None and found.marks:
            self._say(
                f"{self._template.name} writes {', '.join(found.marks)}, no tokens of this tokenizer; the model "
                "reads them as plain text"
            )
        both: list[JsonObject] = [
            {"role": "user", "content": _QUESTION},
            {"role": "assistant", "content": _ANSWER},
        ]
        for messages in (both, [*both, both[0]]):
            try:
                text = self._render(messages, {}, asks=False)
            except (RefusedError, UserError):
                break
            after = text[text.rfind(_ANSWER) + len(_ANSWER) :]
            if end := after.partition(_QUESTION)[0].strip():
                return ends, (end,)
        return ends, ()

    def _say_limit(self, room: int, max_tokens: int) -> None:
        """Say which limit ended an answer."""
        if room < max_tokens:
            self._say(f"an answer ended at the model's longest sequence, {self.longest} tokens")
        else:
            self._say(
                f"an answer ended after sample.max_tokens={max_tokens} tokens; set a larger value for longer answers"
            )

    def _say(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._note(text)


def _special_ids(tokenizer: Tokenizer, template: ChatTemplate) -> set[int]:
    """Return the ids without text in an answer: special tokens of the tokenizer and of its tokenizer_config.json."""
    named = tokenizer.ids_of(template.variables.values()) if isinstance(tokenizer, JsonTokenizer) else ()
    return {*tokenizer.special_ids(), *named}
