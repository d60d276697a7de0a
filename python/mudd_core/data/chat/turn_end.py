"""Find the token that ends an answer in a chat template, and the template's marks that are not single tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mudd_core.base.errors import UserError
from mudd_core.base.types import Int64
from mudd_core.data.chat.conversations import Conversation
from mudd_core.data.chat.counted import RefusedError
from mudd_core.data.chat.renderer import Renderer
from mudd_core.data.chat.templates import ChatTemplate
from mudd_core.data.tokenizers.tokenizer import JsonTokenizer, Tokenizer, WithPlaces

_QUESTION, _ANSWER = "Xq", "Yz"  # strings that occur in no template
_MARK = re.compile(r"<\|[^|<>\s]{1,40}\|>|</?(?:start|end)_of_(?:turn|text)>")


@dataclass(frozen=True)
class TurnEnd:
    """The end of an answer in a template.

    token: its id, or None. marks: strings that are not single tokens. text: the text after an answer.
    """

    token: int | None
    marks: tuple[str, ...] = ()
    text: str = ""

    def notes(self, template: str) -> list[str]:
        """Return notes for the user. template: the template's name."""
        found = []
        if self.token is None:
            found.append(
                f"{template} ends an answer without a special token: the model learns no end of a turn, so `sample` "
                "writes up to sample.max_tokens; set another data.template"
            )
        if self.marks:
            found.append(
                f"{template} writes {', '.join(self.marks)}, no token of this tokenizer: the marks are trained as "
                "plain text; use a template of these weights, or a tokenizer with these tokens"
            )
        return found


def turn_end(template: ChatTemplate, tokenizer: Tokenizer) -> TurnEnd | None:
    """Return how a template ends an answer; None if it cannot render a question and an answer."""
    tokenizer = tokenizer.reading_names() if isinstance(tokenizer, JsonTokenizer) else tokenizer
    if not isinstance(tokenizer, WithPlaces):
        return None
    chat = Conversation(
        [{"role": "user", "content": _QUESTION}, {"role": "assistant", "content": _ANSWER}], None
    )
    try:
        renderer = Renderer(template, "all")
        try:
            text = renderer.render(chat, "a question and an answer").text
        finally:
            renderer.close()
    except (RefusedError, UserError):
        return None
    [(ids, places)] = tokenizer.encode_with_places([text])
    special = {tokenizer.eos_id}
    if isinstance(tokenizer, JsonTokenizer):
        special |= tokenizer.special_ids()
    begin = text.rfind(_ANSWER) + len(_ANSWER)
    ends = [int(one) for one, place in zip(ids, places, strict=True) if place[0] >= begin and one in special]
    return TurnEnd(ends[0] if ends else None, _unknown_marks(text, places), text[begin:])


def _unknown_marks(text: str, places: Int64) -> tuple[str, ...]:
    whole = {(int(first), int(end)) for first, end in places}
    return tuple(dict.fromkeys(one.group() for one in _MARK.finditer(text) if one.span() not in whole))
