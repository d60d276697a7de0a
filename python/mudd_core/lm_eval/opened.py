"""The model, the tokenizer and the chat template that the harness evaluates, from a run, a folder or a model."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mudd_core.base.errors import UserError
from mudd_core.base.types import Json, JsonObject
from mudd_core.data.chat.counted import RefusedError
from mudd_core.data.chat.renderer import Renderer, bound_for
from mudd_core.data.chat.templates import ChatTemplate
from mudd_core.data.tokenizers.tokenizer import JsonTokenizer, Tokenizer
from mudd_core.engine.model import Model
from mudd_core.interop.load_run import load_run
from mudd_core.run.build.run_tokenizer import asked_tokenizer
from mudd_core.run.opened.chat_template import chat_template
from mudd_core.run.opened.run import Run
from mudd_core.run.store.run_folder import RunFolder


@dataclass(frozen=True)
class Opened:
    """A model with its tokenizer. run: its source. name: its path."""

    run: Run
    model: Model
    tokenizer: Tokenizer

    @property
    def name(self) -> str:
        """The path of the run or folder."""
        return str(self.run.path)

    def template(self, named: str = "") -> ChatTemplate:
        """Return the chat template. named: chatml or a file, to use instead. Raise UserError if there is none."""
        folder = RunFolder.holding(self.run.path)[0]
        run_folder = folder if folder.is_own_run else None
        return chat_template(self.run.path, self.run.config, run_folder, self.tokenizer, named)


def opened(
    source: str | Path | Run,
    *,
    step: int | str | None = None,
    tokenizer: str | None = None,
    trust_code: bool = False,
) -> Opened:
    """Open a run or a folder. Raise UserError without a tokenizer. tokenizer: a file, folder or name, or bytes."""
    run = source if isinstance(source, Run) else load_run(source, _step(step), trust_code=trust_code)
    model = run.model
    if tokenizer is not None:
        return Opened(run, model, asked_tokenizer(tokenizer, run.config, model.config.vocab_size))
    if (own := run.tokenizer_or_none()) is None:
        raise UserError(
            f"[evaluate] --tokenizer: expected the tokenizer of the ids that {run.path} was trained on, got none; "
            "type --tokenizer=PATH, with a folder, a tokenizer.json, a *.model of sentencepiece, or bytes"
        )
    return Opened(run, model, own)


def _step(step: int | str | None) -> int | Literal["best"] | None:
    if step == "best":
        return "best"
    if step is None or isinstance(step, int):
        return step
    raise UserError(f"[evaluate] step: expected a whole number or best, got {step!r}")


class Prompts:
    """Renders the conversations of the harness by a chat template, in a child process."""

    def __init__(self, template: ChatTemplate, longest: int, variables: JsonObject) -> None:
        self.template = template
        self._renderer = Renderer(template, "all", bound_for(longest))
        self._variables = variables
        weakref.finalize(self, self._renderer.close)

    def text(self, messages: Sequence[Mapping[str, str]], *, asks: bool) -> str:
        """Return the text of messages. asks: end it with the prompt for the next answer, else inside the last message.

        A template that rejects a system message gets the conversation without it. Raise UserError if it rejects that.
        """
        try:
            text = self._render(messages, asks)
        except RefusedError:
            messages = [one for one in messages if one["role"] != "system"]
            try:
                text = self._render(messages, asks)
            except RefusedError as error:
                raise UserError(f"[evaluate] {self.template.name}: {error}") from None
        return text if asks else _until_end(text, messages[-1]["content"])

    def _render(self, messages: Sequence[Mapping[str, str]], asks: bool) -> str:
        given: list[dict[str, Json]] = [{**one} for one in messages]
        return self._renderer.prompt(given, self._variables, asks=asks)


def _until_end(text: str, content: str) -> str:
    """Return the text up to the end of the last message's content, which the model continues."""
    for wanted in (content, content.strip()):
        if (at := text.rfind(wanted)) >= 0:
            return text[: at + len(wanted)]
    raise UserError(
        "[evaluate] chat template: expected the content of the last message in the rendered text, got a template that "
        "changes it; evaluate without --chat"
    )


def special_ids(tokenizer: Tokenizer) -> set[int]:
    """Return the ids that generated text leaves out."""
    found = tokenizer.special_ids() if isinstance(tokenizer, JsonTokenizer) else set()
    known = (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id)
    return {*found, *(one for one in known if one is not None)}
