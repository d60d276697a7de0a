"""The conversations of a run: tokenized examples, and the sequences that are packed from them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.types import Float64
from mudd_core.config import Config
from mudd_core.data.chat.kept import Kept
from mudd_core.data.chat.kept_template import kept_template
from mudd_core.data.chat.masks import marked
from mudd_core.data.chat.turn_end import turn_end
from mudd_core.data.documents.origins import Place
from mudd_core.data.pipelines.chat_rows import ChatRows, Chosen, chosen
from mudd_core.data.pipelines.pair_rows import PairRows, chosen_pairs
from mudd_core.data.rows import RowShape
from mudd_core.data.sources.corpus import Split
from mudd_core.data.sources.splits import sources_of
from mudd_core.data.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class ChatData:
    """Tokenized conversations.

    reference: for pairs of answers, the reference's log-probability of each kept example, in nats.
    """

    config: Config
    fingerprint: str
    kept: Kept
    tokenizer: Tokenizer
    valid_bytes_per_target: float = 0.0
    reference: Float64 | None = None

    @property
    def seal(self) -> str:
        return self.kept.seal

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    @property
    def train_tokens(self) -> int:
        return int(self.train.slots.sum())

    @property
    def documents(self) -> tuple[int, int]:
        return self.train.places.size // self._answers, self.valid.places.size // self._answers

    @property
    def of_pairs(self) -> bool:
        """True if the examples are pairs of answers."""
        return self.config.loss.of_pairs

    @property
    def _answers(self) -> int:
        return 2 if self.of_pairs else 1

    @cached_property
    def train(self) -> Chosen:
        """The training examples."""
        return self._of("train")

    @cached_property
    def valid(self) -> Chosen:
        """The validation examples."""
        return self._of("valid")

    def _of(self, split: Split) -> Chosen:
        return self._found(split, self.config.train.seq_len)

    def _found(self, split: Split, seq_len: int) -> Chosen:
        choose = chosen_pairs if self.of_pairs else chosen
        return choose(self.kept, split, seq_len, self.config.data.too_long)

    @property
    def counted_share(self) -> float:
        """The fraction of targets with a loss in the training examples, before truncation."""
        places = self.train.places
        return float(self.kept.counted[places].sum()) / max(1, int((self.kept.lengths[places] - 1).sum()))

    def rows(self, split: Split, shape: RowShape) -> ChatRows | PairRows:
        found = self._found(split, shape.seq_len)
        shuffled, bos_id = self.config.data.shuffle != "off", self.tokenizer.bos_id
        made: ChatRows | PairRows
        if self.of_pairs:
            loss = self.config.loss
            of_all = loss.kind == "orpo" and loss.nll == "all"
            most = loss.packed_pairs
            made = PairRows(
                self.kept,
                found,
                split,
                shape,
                shuffled,
                bos_id,
                self.reference,
                self.places,
                of_all=of_all,
                most=most,
            )
        else:
            made = ChatRows(self.kept, found, split, shape, shuffled, bos_id, self.places)
        if split == "train" and made.rows < 1 and not found.dropped:
            refused = self.kept.facts.get("refused")
            raise UserError(
                f"[data.path] expected conversations in {self.config.data.path}, got none"
                + "".join(f"; {note}" for note in self._notes())
                + (
                    f" that can be trained on: {refused}; data.bad_examples=fail shows them"
                    if refused
                    else ""
                )
            )
        if split == "train" and made.rows < 1:
            raise UserError(
                f"[data.path] expected examples of at most train.seq_len + 1 = {shape.seq_len + 1:,} tokens, got "
                f"{found.dropped:,} only longer ones; raise train.seq_len or set data.too_long=cut"
            )
        return made

    def places(self, numbers: Collection[int]) -> dict[int, Place]:
        """Return the files of training examples by their numbers; an empty dict if the files are not certain."""
        try:
            found = sources_of(self.config.data, resumed=True)
        except (UserError, FormatError, OSError):
            return {}
        files, kept = (*found.train, *found.valid), self.kept
        inside = kept.files(len(files), self._answers)
        if inside is None:
            return {}
        train, is_exact = np.flatnonzero(kept.held == 0), self.config.data.bad_records != "drop"
        examples = {number: int(train[number * self._answers]) for number in numbers}
        return {
            number: Place(files[inside[at]], int(kept.numbers[at]) if is_exact else None)
            for number, at in examples.items()
        }

    def _notes(self) -> list[str]:
        notes = self.kept.facts.get("notes")
        return [str(note) for note in notes] if isinstance(notes, list) else []

    def describe(self) -> list[str]:
        train, valid = self.train, self.valid
        facts, what = self.kept.facts, "pairs" if self.of_pairs else "examples"
        lines = [
            f"cache       {self.kept.folder}",
            f"pipeline    chat: template {facts.get('template')}, data.loss_on={self.config.data.loss_on}",
            f"train       {self.documents[0]:,} {what}, {train.slots.sum():,} tokens",
            f"valid       {self.documents[1]:,} {what}, {valid.slots.sum():,} tokens",
        ]
        if (template := kept_template(self.kept.folder)) and (end := turn_end(template, self.tokenizer)):
            lines += [f"warning     {note}" for note in end.notes(template.name)]
        if facts.get("refused"):
            lines.append(f"warning     left out: {facts['refused']} (data.bad_examples=drop)")
        lines += [f"note        {note}" for note in self._notes()]
        if facts.get("dropped"):
            lines.append(f"warning     {facts['dropped']}")
        if train.dropped or valid.dropped:
            lines.append(
                f"warning     left out: {train.dropped:,} training and {valid.dropped:,} validation examples with more "
                f"than train.seq_len + 1 = {self.config.train.seq_len + 1:,} tokens (data.too_long)"
            )
        if train.cut or valid.cut:
            lines.append(
                f"warning     cut from the left: {train.cut:,} training, {valid.cut:,} validation examples"
            )
        return lines

    def shown(self) -> list[str]:
        """Return the fraction of targets with a loss, and the first example with these targets marked."""
        one = self.rows("train", RowShape(self.config.train.seq_len, 1, 0)).first()
        text = marked(one.ids.tolist(), one.counts.tolist(), self.tokenizer.decode)
        return [
            f"{self.counted_share:.1%} of the targets contribute to the loss "
            f"(data.loss_on={self.config.data.loss_on}); the first example, with these targets "
            f"between {{+ and +}}:\n  {text}"
        ]
