"""Answers of the base and the tuned model to held-out prompts, side by side."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mudd_core.base.errors import StopRequestedError
from mudd_core.base.show.printable import printable
from mudd_core.base.types import Int64
from mudd_core.cli.tune.base import Base
from mudd_core.config import Config
from mudd_core.data.chat.kept_template import kept_template
from mudd_core.data.chat.turn_end import turn_end
from mudd_core.data.pipelines import prepare
from mudd_core.data.pipelines.chat_data import ChatData
from mudd_core.data.rows import RowShape
from mudd_core.data.tokenizers.tokenizer import JsonTokenizer, Tokenizer
from mudd_core.engine.model import Model
from mudd_core.interop.load_run import load_run
from mudd_core.run.build.base import load_base
from mudd_core.run.loop import signals
from mudd_core.run.records.facts import data_fingerprint
from mudd_core.run.store.json_files import read_facts, read_saved_config
from mudd_core.run.store.metrics import rows_of
from mudd_core.run.store.run_folder import RunFolder

_PROMPTS = 3
_TOKENS = 64
_LAST = 3  # an end of turn starts within the last 3 ids of an answer
_EXAMPLES = 20  # examples whose answers are searched for the text that ends a turn


@dataclass(frozen=True)
class Example:
    """A held-out prompt, and the answer in the data, as ids."""

    prompt: Int64
    answer: Int64


@dataclass(frozen=True)
class Answer:
    """A held-out prompt with three answers: of the data, of the base and of the tuned model."""

    prompt: str
    data: str
    before: str
    after: str


@dataclass(frozen=True)
class Answers:
    """The answers to a few prompts. of_training: no example is held out, so the prompts are of the training data."""

    answers: tuple[Answer, ...]
    of_training: bool = False

    @property
    def note(self) -> str:
        """The reason for prompts of the training data; empty for held-out prompts."""
        return "no example is held out, so these prompts are of the training data" if self.of_training else ""

    def text(self) -> str:
        """Return the text that the command prints; empty without answers."""
        lines = ["", f"{self.note}:"] if self.note else []
        for one in self.answers:
            lines.append("")
            lines += [f"  {name:<7} {printable(repr(text)[1:-1])}" for name, text in vars(one).items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class HeldOut:
    """A validation: the loss in nats. accuracy, margin: of pairs of answers (Validation); None for other data."""

    loss: float
    accuracy: float | None = None
    margin: float | None = None


def losses_text(found: Sequence[HeldOut]) -> str:
    """Return the first and the last held-out loss; empty for less than two. found: all validations.

    For pairs of answers, also return accuracy and margin.
    """
    if len(found) < 2:
        return ""
    losses = [one.loss for one in found]
    if found[0].margin is not None:
        rows = {
            "loss": [f"{one.loss:.4f}" for one in found],
            "accuracy": [f"{one.accuracy or 0.0:.1%}" for one in found],
            "margin": [f"{one.margin or 0.0:.4f}" for one in found],
        }
        parts = ", ".join(f"{name} {texts[0]} before, {texts[-1]} after" for name, texts in rows.items())
        return f"\nheld-out pairs: {parts}"
    return f"\nheld-out loss: {losses[0]:.4f} before, {losses[-1]:.4f} after (nats per target token)"


def teacher_text(run: RunFolder) -> str:
    """Return the first and the last divergence from the teacher on held-out examples; empty without a teacher."""
    found = [
        (row["val_teacher_kl"], row["val_teacher_agreement"])
        for row in rows_of(run)
        if row.get("val_teacher_kl") is not None
    ]
    if len(found) < 2:
        return ""
    (kl, agreed), (last_kl, last_agreed) = found[0], found[-1]
    return (
        f"held-out divergence from the teacher: {kl:.4f} before, {last_kl:.4f} after (nats per target token)\n"
        f"held-out agreement with the teacher: {agreed:.1%} before, {last_agreed:.1%} after"
    )


def held_out(run: RunFolder) -> list[HeldOut]:
    """Return the validations on the held-out examples: nats per target token with a loss, or per pair of answers."""
    return [
        HeldOut(
            row["val_loss"], *((row.get("val_accuracy"), row["val_margin"]) if "val_margin" in row else ())
        )
        for row in rows_of(run)
        if row.get("val_loss") is not None
    ]


def print_answers(run: RunFolder, base: Base) -> None:
    """Print the losses on the held-out examples, and the answers of both models to a few of their prompts.

    Raise StopRequestedError, with the reason, if a stop is requested before all answers are complete.
    """
    if losses := losses_text(held_out(run)):
        print(losses, flush=True)
    if of_teacher := teacher_text(run):
        print(of_teacher, flush=True)
    if answers := answers_of(run, base).text():
        print(answers)


def answers_of(run: RunFolder, base: Base) -> Answers:
    """Return the answers of both models to a few held-out prompts. Raise StopRequestedError as print_answers does."""
    config = read_saved_config(run)
    data = prepare(config, fingerprint=data_fingerprint(read_facts(run)))
    assert isinstance(data, ChatData)
    examples = _held_out(data, config.train.seq_len)
    if not examples:
        return Answers(())
    gc.collect()  # free the memory of training before loading two models
    end = _end_of(data, examples)
    shown = examples[:_PROMPTS]
    makers = {"before": lambda: _begun(config, run, base), "after": lambda: load_run(run.path).model}
    # the model may write other text than the template's line break after the token
    stop = end.rstrip()
    answers = {name: _answers(make, data.tokenizer, shown, stop) for name, make in makers.items()}
    found = []
    for number, one in enumerate(shown):
        prompt, data_text = data.tokenizer.decode(one.prompt), data.tokenizer.decode(one.answer)
        both = (answers[name][number] for name in ("before", "after"))
        found.append(Answer(prompt, data_text.removesuffix(end), *both))
    return Answers(tuple(found), of_training=not data.documents[1])


def _begun(config: Config, run: RunFolder, base: Base) -> Model:
    """Return the model before the first update: the base with the initial adapters."""
    if not config.lora.start_from:
        return load_run(base.run.path).model
    model = Model(base.model, precision=config.train.precision, lora=config.lora)
    load_base(config, model, run).settle(model, fresh=True)
    return model


def _held_out(data: ChatData, seq_len: int) -> list[Example]:
    """Return the last answers of held-out examples, or of training examples if none are held out."""
    found = []
    for split in ("valid", "train"):
        rows = data.rows("valid" if split == "valid" else "train", RowShape(seq_len, 1, 0))
        # The chosen answers of pairs are the even sequences.
        for row in range(0, min(rows.rows, _EXAMPLES), 2 if data.of_pairs else 1):
            for one in rows.examples(row):
                last = np.flatnonzero(one.counts)[-1]
                first = (
                    last - int(np.argmin(one.counts[last::-1])) + 1 if not one.counts[: last + 1].all() else 0
                )
                if first:
                    found.append(Example(one.ids[:first], one.ids[first : last + 1]))
        if found:
            break
    return found[:_EXAMPLES]


def _end_of(data: ChatData, examples: list[Example]) -> str:
    """Return the text that ends a turn: from the special token among the last ids, or else the template's text.

    The answers may end equally before that text, as in questions of yes and no, so their common end does not show it.
    """
    tokenizer = data.tokenizer
    special = tokenizer.special_ids() if isinstance(tokenizer, JsonTokenizer) else set()
    for one in examples:
        last = one.answer[-_LAST:].tolist()
        if found := [at for at, number in enumerate(last) if number in special]:
            return tokenizer.decode(last[found[0] :])
    template = kept_template(data.kept.folder)
    end = None if template is None else turn_end(template, tokenizer)
    return "" if end is None else _counted_part(end.text, [tokenizer.decode(one.answer) for one in examples])


def _counted_part(end: str, answers: Sequence[str]) -> str:
    """Return the start of the template's end that all answers have; empty for white space, which ends lines too."""
    found = (end[:at] for at in range(len(end), 0, -1))
    text = next((one for one in found if all(answer.endswith(one) for answer in answers)), "")
    return text if text.strip() else ""


def _answers(make: Callable[[], Model], tokenizer: Tokenizer, asked: list[Example], end: str) -> list[str]:
    """Return the answers of a model, and free the model afterwards."""
    model = make()
    return [_answer(model, tokenizer, one, end) for one in asked]


def _answer(model: Model, tokenizer: Tokenizer, asked: Example, end: str) -> str:
    """Return the greedy continuation of a prompt, up to the end of a turn."""
    room = model.config.max_seq_len - asked.prompt.size
    ids: list[int] = []
    text = ""
    if room < 1:
        return text
    tokens = model.generate(
        asked.prompt.astype(np.int32), max_tokens=min(_TOKENS, room), ids_below=tokenizer.ids_below
    )
    for token in tokens:
        if reason := signals.stop_reason():
            raise StopRequestedError(reason)
        if token == tokenizer.eos_id:
            break
        ids.append(int(token))
        text = tokenizer.decode(ids)
        if end and text.endswith(end):
            return text.removesuffix(end)
    return text
