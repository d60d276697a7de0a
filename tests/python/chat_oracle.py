"""Chat data rendered and masked by this package and by transformers, compared."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from chat_cases import Turn, random_chat, template, write_folder
from mudd_core.config import DataConfig
from mudd_core.data.chat.conversations import conversation_of
from mudd_core.data.chat.counted import REFUSES, RefusedError
from mudd_core.data.chat.masks import example_of
from mudd_core.data.chat.renderer import Renderer
from mudd_core.data.chat.templates import find_template
from mudd_core.data.tokenizers.source import find_tokenizer
from mudd_core.data.tokenizers.tokenizer import JsonTokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# Our errors for an ambiguous mask; in those cases transformers masks whole tokens, or another part of the text.
OURS_ALONE = ("the start or end of a turn inside a token",)


@dataclass
class Compared:
    """Conversations that both accept with equal ids and mask, that both refuse, and that only we refuse."""

    equal: int = 0
    refused: int = 0
    uncertain: int = 0


def theirs(folder: Path) -> PreTrainedTokenizerFast:
    """Return the tokenizer of a folder in transformers."""
    from transformers import PreTrainedTokenizerFast

    return cast("PreTrainedTokenizerFast", PreTrainedTokenizerFast.from_pretrained(folder))


def chats(seed: int, count: int) -> list[list[Turn]]:
    draw = random.Random(seed)
    return [random_chat(draw) for _ in range(count)]


def compare(
    folder: Path,
    form: str,
    conversations: list[list[Turn]],
    *,
    marks: bool,
    kept: list[tuple[list[Turn], list[int]]] | None = None,
) -> Compared:
    """Render, tokenize and mask conversations here and in transformers. Raise AssertionError if any differs.

    marks: True if our template has generation marks; the template for transformers always has, because its mask needs
    them. kept: receives what both accept: the ids in the loss and -100 for the others.
    """
    write_folder(folder, form, marks=marks)
    source = find_tokenizer(str(folder), 0).reading_names()
    tokenizer = source.make()
    assert isinstance(tokenizer, JsonTokenizer)
    oracle, result = theirs(folder), Compared()
    renderer = Renderer(find_template(DataConfig(tokenizer=str(folder)), tokenizer), "assistant")
    try:
        for number, messages in enumerate(conversations):
            expected = _expected(oracle, template(form, marks=True), messages)
            try:
                chat = renderer.render(
                    conversation_of({"messages": [{**turn} for turn in messages]}, "messages"),
                    f"example {number}",
                )
                [(ids, places)] = tokenizer.encode_with_places([chat.text])
                one = example_of(chat, ids, places, tokenizer.bos_id, tokenizer.eos_id)
            except RefusedError as error:
                if error.kind in OURS_ALONE:
                    result.uncertain += 1
                else:
                    assert error.kind == REFUSES and isinstance(expected, str), error
                    assert expected in error.reason
                    result.refused += 1
                continue
            assert not isinstance(expected, str), (messages, expected)
            text = oracle.apply_chat_template(
                messages, chat_template=template(form, marks=marks), tokenize=False
            )
            assert chat.text == text
            assert (one.ids.tolist(), one.counts.astype(int).tolist()) == expected, messages
            result.equal += 1
            if kept is not None:
                kept.append((messages, np.where(one.counts, one.ids, -100).tolist()))
    finally:
        renderer.close()
    return result


def _expected(
    oracle: PreTrainedTokenizerFast, source: str, messages: list[Turn]
) -> tuple[list[int], list[int]] | str:
    """Return ids and mask; or the template's error for the conversation."""
    from jinja2.exceptions import TemplateError

    try:
        made = oracle.apply_chat_template(
            messages, chat_template=source, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
    except TemplateError as error:
        return str(error)
    found = cast("dict[str, list[int]]", made)
    return found["input_ids"], found["assistant_masks"]
