"""A run as an object with model, metrics, generated text and answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, overload

from mudd_core.base.arguments.checks import require_flag
from mudd_core.base.arguments.known import Hinted, known_arguments
from mudd_core.base.errors import UserError
from mudd_core.base.other_names import RUN
from mudd_core.base.show.printable import visible_line
from mudd_core.base.show.tables import html_table
from mudd_core.base.surroundings import notes_stream
from mudd_core.config import Config, SampleConfig
from mudd_core.config.suggest import nearest
from mudd_core.engine.model import Model
from mudd_core.run.opened.chat import Chat
from mudd_core.run.opened.chat_messages import checked_messages
from mudd_core.run.opened.chat_template import chat_template
from mudd_core.run.opened.source import Source
from mudd_core.run.opened.text_stream import TextStream
from mudd_core.run.records.events import Sample
from mudd_core.run.report.curve import Curve, curve
from mudd_core.run.report.object_text import Facts, one_line, run_facts
from mudd_core.run.report.sample import pieces
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.last_step import last_step
from mudd_core.run.store.metric_arrays import Metrics
from mudd_core.run.store.metrics import Row, rows_of, samples_of

if TYPE_CHECKING:
    from mudd_core.data.tokenizers.tokenizer import Tokenizer


class Sampling(TypedDict, total=False):
    """The keyword arguments of Run.generate; Run.generate explains them."""

    max_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    seed: int | None
    window: str | None
    bos: bool | None
    special_tokens: bool | None
    write: Callable[[str], None]


class ChatSettings(TypedDict, total=False):
    """The keyword arguments of Run.chat; Run.chat explains them."""

    max_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    seed: int | None
    enable_thinking: bool | None
    template: str


class Run(Hinted):
    """A run opened by mc.load_run: `run.model`, `run.metrics["loss"]`, `run.generate("text")`, `run.plot()`.

    It takes no lock and reads no training text, so it can be used while the run trains. Metrics, validations and
    checkpoints are read again on each access; the model comes from the newest checkpoint at first use.
    """

    _other_names = RUN

    def __init__(self, source: Source) -> None:
        self._source = source
        self._model: tuple[Model, int | None] | None = None
        self._tokenizer: Tokenizer | None = None
        self._chats: dict[str, Chat] = {}  # by the argument `template`

    @property
    def path(self) -> Path:
        """The folder that was opened."""
        return self._source.path

    @property
    def config(self) -> Config:
        """The config of the run. For a folder without a run, it has only the model's config."""
        return self._source.config

    @property
    def model(self) -> Model:
        """The model with the weights of the checkpoint. Raise UserError if the run has no checkpoint yet."""
        return self._loaded()[0]

    @property
    def step(self) -> int | None:
        """The step of the checkpoint of `model`; None for weights without a run."""
        return self._loaded()[1]

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer. Raises UserError if the data are ids, or if the folder has none."""
        found = self.tokenizer_or_none()
        if found is None:
            raise UserError(
                f"[load_run] tokenizer: {self.path} has none; call run.model.generate(ids) with token ids, or put the "
                "tokenizer.json of these ids into the folder"
            )
        return found

    def tokenizer_or_none(self) -> Tokenizer | None:
        """Return the tokenizer; None if the data are ids, or if the folder has none."""
        if self._tokenizer is None:
            self._tokenizer = self._source.tokenizer()
        return self._tokenizer

    @property
    def metrics(self) -> Metrics:
        """The logged updates as arrays by name: step, loss, lr, grad_norm, tokens_per_second and more."""
        return Metrics.of_rows(row for row in self._rows() if "val_loss" not in row)

    @property
    def validations(self) -> Metrics:
        """The validations as arrays by name: step, val_loss (nats), val_bits_per_byte, val_ppl, val_accuracy."""
        return Metrics.of_rows(row for row in self._rows() if "val_loss" in row)

    @property
    def samples(self) -> list[Sample]:
        """The samples of sample.every, ascending: step, prompt, text."""
        return [] if self._source.folder is None else samples_of(self._source.folder)

    @property
    def checkpoints(self) -> dict[int, Path]:
        """Folders of the saved checkpoints by step, ascending; mc.load_run opens each."""
        folder = self._source.folder
        if folder is None:
            return {}
        return {step: folder.step_folder(step) for step in Checkpoints(folder).steps()}

    # jedi completes the keywords of this overload; it does not read Unpack.
    @overload
    def generate(
        self,
        prompt: str = "",
        *,
        stream: Literal[False] = False,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        window: str | None = None,
        bos: bool | None = None,
        special_tokens: bool | None = None,
        write: Callable[[str], None] = ...,
    ) -> str: ...
    @overload
    def generate(
        self, prompt: list[str], *, stream: Literal[False] = False, **settings: Unpack[Sampling]
    ) -> list[str]: ...
    @overload
    def generate(
        self, prompt: str = "", *, stream: Literal[True], **settings: Unpack[Sampling]
    ) -> TextStream: ...
    @known_arguments("generate")
    def generate(
        self,
        prompt: str | list[str] = "",
        *,
        stream: bool = False,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        window: str | None = None,
        bos: bool | None = None,
        special_tokens: bool | None = None,
        write: Callable[[str], None] = lambda text: None,
    ) -> str | list[str] | TextStream:
        """Return the text that the model generates after the prompt; an empty prompt starts a new document.

        prompt: for a list of prompts, return a list of strings, each as for the prompt alone. stream: return an
        iterator over the pieces of the text: `for piece in run.generate("The", stream=True): print(piece, end="")`.

        The `sample` section of the config has the defaults; Model.generate explains them. bos: start with the BOS token
        if the tokenizer adds one. special_tokens: parse their names in the prompt; pass False for untrusted prompts.
        write: called with each piece of the text. Raise UserError without a tokenizer.
        """
        require_flag("generate", "stream", stream)
        several = isinstance(prompt, list)
        for one in prompt if several else [prompt]:
            if not isinstance(one, str):
                raise TypeError(
                    "[generate] prompt: expected a string or a list of strings, got a value of type "
                    f"{type(one).__name__}; for token ids call run.model.generate(ids)"
                )
        if several and stream:
            raise ValueError(
                "[generate] stream: expected one prompt, got a list; call generate for each prompt"
            )
        given = {
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
            "window": window,
            "bos": bos,
            "special_tokens": special_tokens,
        }
        settings = self._sampling(given)
        if isinstance(prompt, list):
            return [self._text(one, settings, write) for one in prompt]
        if stream:
            return TextStream(prompt, self._pieces(prompt, settings, write))
        return self._text(prompt, settings, write)

    @overload
    def chat(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        stream: Literal[False] = False,
        **settings: Unpack[ChatSettings],
    ) -> str: ...
    @overload
    def chat(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        stream: Literal[True],
        **settings: Unpack[ChatSettings],
    ) -> TextStream: ...
    @known_arguments("chat")
    def chat(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        stream: bool = False,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        enable_thinking: bool | None = None,
        template: str = "",
    ) -> str | TextStream:
        """Return the model's answer to a conversation: `run.chat([{"role": "user", "content": "Hello"}])`.

        messages: dicts with role (system, user, assistant, tool) and content. Append the answer and the next question
        for another turn; the keys and values of the ids that are the same as before are not computed again. The oldest
        turns of a conversation that is longer than the model's longest sequence are left out, and a note says so.

        stream: return an iterator over the pieces of the answer. enable_thinking: a variable of the template. template:
        `chatml` or a file, for a run without a chat template. The `sample` section of the config has the defaults of
        the others. Raise UserError for other messages, and if the template rejects them.
        """
        require_flag("chat", "stream", stream)
        found = checked_messages(messages)
        given = {
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
        }
        settings, chat = self._sampling(given), self.chat_with(template)
        answer = chat.pieces(found, settings, chat.variables(enable_thinking))
        return TextStream(str(found[-1]["content"]), answer) if stream else "".join(answer)

    def chat_with(
        self,
        template: str = "",
        tokenizer: Tokenizer | None = None,
        note: Callable[[str], None] = lambda text: _note(text),
    ) -> Chat:
        """Return the object that answers conversations.

        template: as for chat(). tokenizer: None for the run's. note: called with lines for the user.
        """
        if template not in self._chats:
            source, tokenizer = self._source, tokenizer or self.tokenizer
            found = chat_template(source.path, source.config, source.folder, tokenizer, template)
            self._chats[template] = Chat(self.model, tokenizer, found, note)
        return self._chats[template]

    def _sampling(self, given: Mapping[str, int | float | str | bool | None]) -> SampleConfig:
        """Return the sample section of the config with the values that are not None."""
        known = {name: value for name, value in given.items() if value is not None}
        return self.config.replace({"sample": known}).sample if known else self.config.sample

    def _pieces(self, prompt: str, settings: SampleConfig, write: Callable[[str], None]) -> Iterator[str]:
        """Yield the pieces of the text after a prompt, and pass each to `write`."""
        for piece in pieces(self.model, self.tokenizer, prompt, settings, _note):
            write(piece)
            yield piece

    def _text(self, prompt: str, settings: SampleConfig, write: Callable[[str], None]) -> str:
        return "".join(self._pieces(prompt, settings, write))

    def plot(self, name: str = "loss") -> Curve:
        """Return the curve of a metric, by default the loss with validations as dots; .save("x.svg") writes it.

        A notebook shows a picture, a terminal characters. Raise UserError for a metric that the run has not logged.
        """
        metrics, validations = self.metrics, self.validations
        if name not in metrics and name not in validations:
            known = [*metrics, *validations]
            has = f"it has {', '.join(known)}" if known else f"{self.path} has logged nothing yet"
            raise UserError(
                f"[plot] name: expected a metric of the run, got '{name}'{nearest(name, known)}; {has}"
            )
        return curve(self.config.name, name, metrics, validations)

    def _loaded(self) -> tuple[Model, int | None]:
        if self._model is None:
            self._model = self._source.model()
        return self._model

    def _rows(self) -> list[Row]:
        return [] if self._source.folder is None else list(rows_of(self._source.folder))

    def _facts(self) -> Facts:
        """Return the step, loss, tokens and date: of the opened checkpoint, else of the run's last step."""
        folder, step = self._source.folder, self._source.step
        last = None if folder is None else last_step(folder, step)
        if last is None:
            return run_facts(self.config, None, None, None, self.path)
        train = self.config.train
        return {
            **run_facts(self.config, last.step, last.loss, None, self.path),
            "tokens": f"{last.step * train.batch_size * train.seq_len:,}",
            "date": time.strftime("%Y-%m-%d %H:%M", time.localtime(last.changed)),
        }

    def _repr_html_(self) -> str:
        facts = dict(self._facts())
        if saved := list(self.checkpoints):
            facts["checkpoints"] = ", ".join(map(str, saved))
        return html_table(facts.items(), title=f"Run '{self.config.name}'")

    def __repr__(self) -> str:
        return visible_line(one_line("Run", self.config.name, self._facts()))


def folder_named_by(run: Run) -> Path:
    """Return the folder that was opened, or the checkpoint's folder if a step was named."""
    source = run._source
    return (
        source.path
        if source.folder is None or source.step is None
        else source.folder.step_folder(source.step)
    )


def _note(text: str) -> None:
    print(f"note: {text}", file=notes_stream())
