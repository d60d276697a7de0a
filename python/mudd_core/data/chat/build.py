"""Tokenize the conversations of files one after another, and count the rejected ones by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.types import Int64
from mudd_core.config.data import DataConfig
from mudd_core.data.chat.conversations import NoLayoutError, conversation_of, messages_column, records
from mudd_core.data.chat.counted import (
    CHANGES,
    CHANGES_EARLIER,
    REFUSES,
    TOO_LONG,
    TOO_MUCH_MEMORY,
    RefusedError,
)
from mudd_core.data.chat.kept import Entry
from mudd_core.data.chat.masks import example_of, require_spans
from mudd_core.data.chat.pairs import digest_of, pair_of, whole_pairs
from mudd_core.data.chat.renderer import SHORTEST_BOUND, RenderedChat, Renderer
from mudd_core.data.chat.templates import ChatTemplate
from mudd_core.data.formats.format import BadRecords, Format
from mudd_core.data.progress import end_on_request
from mudd_core.data.sources.corpus import Progress
from mudd_core.data.sources.splits import Sources
from mudd_core.data.tokenizers.tokenizer import Tokenizer, WithPlaces

_LONGEST = 240  # characters of a rendered text that a message shows
_BEFORE = 60  # characters of that text before the first difference
_AT_ONCE = 64  # conversations that are tokenized in one call
_CHARACTERS_AT_ONCE = (
    1 << 20
)  # characters in one call: the ids and offsets of one character use about 300 bytes
_TRIED = 20  # conversations after which a template is rejected if all of them were too large
_PARSED = "tool calls have arguments as JSON strings, which are read as objects"
_CHANGED = "earlier answers are changed by the template when later turns follow; they are not trained on"
_LONG = "conversations are far longer than train.seq_len and are dropped (data.too_long)"


_Rendered = tuple[RenderedChat, int, str, bytes, bool]


@dataclass
class Faults:
    """The rejected examples of a data set. counts: by kind. first: the message about the first example of each kind."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, example: str, error: RefusedError) -> None:
        """Count one rejected example. example: its index and file, for messages."""
        self.counts[error.kind] = self.counts.get(error.kind, 0) + 1
        self.first.setdefault(
            error.kind, "\n".join([f"{example}: {error.reason}", *shown_texts(error.texts)])
        )

    def text(self) -> str:
        """Return the count of each kind; an empty string if there are none."""
        return ", ".join(f"{count:,} with {kind}" for kind, count in self.counts.items())

    def require_none(self, total: int) -> None:
        """Raise UserError with the first example of each kind and a remedy if any was rejected. total: all examples."""
        if not self.counts:
            return
        refused = sum(self.counts.values())
        raise UserError(
            f"[data.path] {refused:,} of {total:,} examples cannot be trained on: {self.text()}\n"
            + "\n".join(self.first.values())
            + "\nmend them, or set data.bad_examples=drop to train without them"
            + self._hint()
        )

    def _hint(self) -> str:
        """Return remedies for some kinds."""
        hints = []
        if {CHANGES, CHANGES_EARLIER} & self.counts.keys():
            ways = "a template with {% generation %} marks (data.template=FILE)"
            if CHANGES not in self.counts:
                ways += ", or data.loss_on=last,"
            hints.append(f"{ways} accepts turns that change earlier text")
        if REFUSES in self.counts:
            hints.append("data.template=chatml or FILE selects another template")
        return "".join(f"; {hint}" for hint in hints)


def shown_texts(texts: list[str]) -> list[str]:
    """Return lines that show one string from its start, or two from shortly before their first difference."""
    if len(texts) < 2:
        return [f"  text    {_cut(one, 0)}" for one in texts]
    same = next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    return [
        f"  {name:<7} {_cut(one, max(0, same - _BEFORE))}"
        for name, one in zip(("first", "second"), texts, strict=True)
    ]


def _cut(text: str, first: int) -> str:
    end = first + _LONGEST
    return f"{'...' if first else ''}{text[first:end]!r}{'...' if end < len(text) else ''}"


@dataclass
class Build:
    """A reader of all examples of the files. faults: the rejected ones, complete after the last entry.

    pairs: each record is a pair of answers, and both become entries.
    """

    settings: DataConfig
    found: Sources
    template: ChatTemplate
    tokenizer: Tokenizer
    progress: Progress
    faults: Faults = field(default_factory=Faults)
    total: int = 0
    longest: int = SHORTEST_BOUND
    pairs: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    bad: BadRecords = field(init=False)

    def __post_init__(self) -> None:
        self.bad = BadRecords(self.settings.bad_records == "drop")

    def entries(self) -> Iterator[Entry]:
        """Yield the examples in the order of the files.

        Raise UserError at the end for rejected examples that the config does not drop.
        """
        renderer = Renderer(self.template, self.settings.loss_on, self.longest)
        try:
            made = self._tokenized(_groups(self._rendered(renderer)))
            yield from whole_pairs(made) if self.pairs else (one for one in made if one is not None)
        finally:
            renderer.close()
        if self.settings.bad_examples == "fail":
            self.faults.require_none(self.total)

    def _rendered(self, renderer: Renderer) -> Iterator[_Rendered]:
        """Yield each rendered conversation, its index, its place for messages, its digest, and True for validation."""
        column = messages_column(self.settings.column)
        files = [
            (file, held) for held, some in enumerate((self.found.train, self.found.valid)) for file in some
        ]
        for done, (file, held) in enumerate(files):
            for number, record in enumerate(records(file, self.found.format, self.bad), 1):
                self.total += 1
                if self.total % _AT_ONCE == 1:
                    end_on_request("rendering conversations")
                    self.progress("rendering conversations", done, len(files))
                place = f"example {number:,} of {file.name}"
                try:
                    chats = pair_of(record, column) if self.pairs else (conversation_of(record, column),)
                    digest = digest_of(chats)
                    found = [renderer.render(chat, place) for chat in chats]
                    for rendered in found:
                        require_spans(rendered)  # done before tokenizing, which takes seconds per megabyte
                    self.counts[_PARSED] += sum(chat.parsed for chat in chats)
                    self.counts[_CHANGED] += sum(rendered.changed for rendered in found)
                    yield from ((rendered, number, place, digest, bool(held)) for rendered in found)
                except RefusedError as error:
                    self._require_some(error)
                    if error.kind == TOO_LONG and self.settings.too_long != "fail":
                        self.counts[_LONG] += 1
                        continue
                    if number == 1 and isinstance(error, NoLayoutError):
                        raise _of_another_layout(place, error) from None
                    self.faults.add(place, error)
        self.progress("rendering conversations", len(files), len(files))

    def _require_some(self, error: RefusedError) -> None:
        """Raise UserError if each of the first conversations becomes too large, because reading all takes minutes."""
        large = self.counts[_LONG] + self.faults.counts.get(TOO_MUCH_MEMORY, 0) + 1
        if error.kind in (TOO_LONG, TOO_MUCH_MEMORY) and large == self.total == _TRIED:
            raise UserError(
                f"[data.template] {self.template.name}: each of the first {_TRIED} conversations fails: "
                f"{error.reason}; name another template"
            )

    def notes(self) -> list[str]:
        """Return lines about the conversations that were changed on reading, or not trained on."""
        return [f"{count:,} {what}" for what, count in self.counts.items() if count]

    def _tokenized(self, groups: Iterator[list[_Rendered]]) -> Iterator[Entry | None]:
        """Yield the entries, None for a rejected conversation."""
        for group in groups:
            end_on_request("tokenizing conversations")
            yield from self._of_group(group)

    def _of_group(self, group: list[_Rendered]) -> Iterator[Entry | None]:
        assert isinstance(self.tokenizer, WithPlaces)
        found: list[tuple[Int64, Int64]] = self.tokenizer.encode_with_places(
            [chat.text for chat, *_ in group]
        )
        for (chat, number, place, digest, held), (ids, places) in zip(group, found, strict=True):
            try:
                one = example_of(chat, ids, places, self.tokenizer.bos_id, self.tokenizer.eos_id)
            except RefusedError as error:
                self.faults.add(place, error)
                yield None
            else:
                yield Entry(one, number, digest, held)


def _groups(ready: Iterator[_Rendered]) -> Iterator[list[_Rendered]]:
    """Yield the conversations of each tokenizer call.

    Long conversations share a call with few others, to save memory.
    """
    group: list[_Rendered] = []
    characters = 0
    for one in ready:
        if group and characters + len(one[0].text) > _CHARACTERS_AT_ONCE:
            yield group
            group, characters = [], 0
        group.append(one)
        characters += len(one[0].text)
        if len(group) == _AT_ONCE:
            yield group
            group, characters = [], 0
    if group:
        yield group


def _of_another_layout(place: str, error: NoLayoutError) -> UserError:
    """Return the error for a file whose first record has no known keys; the other records probably have none either."""
    return UserError(f"[data.column] {place}: {error}")


def require_conversation(path: Path, one: Format, column: str, *, pairs: bool = False) -> None:
    """Raise UserError or FormatError if the first record of a file is not a conversation. column: as data.column.

    pairs: the records are pairs of answers, which are checked when all are read.
    """
    if pairs:
        next(records(path, one, filled=False), None)
        return
    if (record := next(records(path, one, filled=False), None)) is not None:
        try:
            conversation_of(record, messages_column(column))
        except NoLayoutError as error:
            raise _of_another_layout(f"example 1 of {path.name}", error) from None
        except RefusedError:  # counted when all records are read
            return
