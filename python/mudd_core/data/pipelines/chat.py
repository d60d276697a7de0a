"""The pipeline `chat`: conversations rendered by a chat template, with a loss on the assistant's turns.

Whole examples are packed by best fit into sequences. Each example is a segment with positions from 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.types import Float64, JsonObject
from mudd_core.config import Config
from mudd_core.data.cache.folder import locked
from mudd_core.data.chat.build import Build
from mudd_core.data.chat.kept import MANIFEST, Kept, open_kept, write_kept
from mudd_core.data.chat.masks import marked
from mudd_core.data.chat.renderer import bound_for
from mudd_core.data.chat.templates import ChatTemplate, find_template
from mudd_core.data.chat.turn_end import turn_end
from mudd_core.data.formats.format import dropped_note
from mudd_core.data.pipelines.chat_rows import PARTS, ChatRows, Chosen, chosen
from mudd_core.data.pipelines.ids_data import fingerprint_of
from mudd_core.data.pipelines.pair_rows import PairRows, chosen_pairs
from mudd_core.data.progress import ConsoleProgress
from mudd_core.data.rows import Pipeline, Preparation, RowShape
from mudd_core.data.sources.access import Access, local_root
from mudd_core.data.sources.corpus import Split
from mudd_core.data.sources.notes import drop_notes, keep_notes, note_of, require_unchanged
from mudd_core.data.sources.splits import sources_of
from mudd_core.data.tokenizers.source import TokenizerSource, find_tokenizer, stored_file, stored_tokenizer
from mudd_core.data.tokenizers.tokenizer import Tokenizer

_TEMPLATE, _TOOL_USE = "template.jinja", "tool_use.jinja"


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
                self.kept, found, split, shape, shuffled, bos_id, self.reference, of_all=of_all, most=most
            )
        else:
            made = ChatRows(self.kept, found, split, shape, shuffled, bos_id)
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


def prepare(config: Config, how: Preparation) -> ChatData:
    """Return the conversations of the files, rendered and tokenized once.

    Raise UserError if no target has a loss, or if all targets have one although data.loss_on is not `all`.
    """
    root = local_root(config.data.cache_dir)
    if how.fingerprint is not None and (folder := root / f"chat-{how.fingerprint}").is_dir():
        return _checked(_opened(config, folder))
    source = _tokenizer_of(config)
    tokenizer = source.make()
    template = find_template(config.data, tokenizer)
    found = sources_of(config.data, resumed=how.fingerprint is not None)
    files = (*found.train, *found.valid)
    rule: JsonObject = {
        "chat": 1,
        "tokenizer": source.identity,
        "loss_on": config.data.loss_on,
        "column": config.data.column,
        "bad": config.data.bad_examples,
        **template.identity(),
    }
    if config.data.bad_records == "drop":
        rule["bad_records"] = "drop"
    if config.loss.of_pairs:
        rule["pairs"] = 1
    longest = bound_for(config.train.seq_len)
    # Earlier versions kept the nulls of tables, and stored arguments as strings. New runs do not use their caches.
    if how.fingerprint is None or how.fingerprint != fingerprint_of(files, rule, None):
        rule |= {"chat": 2, "longest": longest, "fails": config.data.too_long == "fail"}
    folder = root / f"chat-{fingerprint_of(files, rule, how.fingerprint)}"
    progress = how.progress or ConsoleProgress(what=f"rendering conversations into {folder}")
    if folder.is_dir():
        require_unchanged(root, folder.name, files)
    else:
        if how.before_build is not None:
            how.before_build()
        with locked(root, f"{folder.name}.lock", progress):
            if not folder.is_dir():
                of_pairs = config.loss.of_pairs
                build = Build(
                    config.data, found, template, tokenizer, progress, longest=longest, pairs=of_pairs
                )
                _write(folder, build, source)
    return _checked(_opened(config, folder))


def _write(folder: Path, build: Build, source: TokenizerSource) -> None:
    root, files = folder.parent, (*build.found.train, *build.found.valid)
    beside = {_TEMPLATE: build.template.source.encode()}
    if build.template.tool_use:
        beside[_TOOL_USE] = build.template.tool_use.encode()
    if (name := stored_file(source.identity)) is not None:
        beside[name] = source.data

    def facts() -> JsonObject:
        name = build.template.name  # only the file name, because a tokenizer's folder may be moved
        return {
            "tokenizer": source.identity,
            "template": Path(name).name if build.settings.template == "auto" else name,
            "variables": {**build.template.variables},
            "refused": build.faults.text(),
            "notes": [*build.notes()],
            "dropped": dropped_note(build.bad.count, build.bad.first),
            "examples": build.total,
        }

    keep_notes(root, folder.name, [note_of(path) for path in files])
    try:
        write_kept(root, folder.name, build.entries(), beside, facts, hold_out=not build.found.valid)
        require_unchanged(root, folder.name, files)
    except BaseException:
        if not folder.is_dir():
            drop_notes(root, folder.name)
        raise


def kept_template(folder: Path) -> ChatTemplate | None:
    """Return the template with which a cache was rendered; None if the folder has none."""
    if not (folder / _TEMPLATE).is_file():
        return None
    facts, of_tools = open_kept(folder).facts, folder / _TOOL_USE
    named = facts.get("variables")
    variables = {name: str(text) for name, text in named.items()} if isinstance(named, dict) else {}
    tool_use = read_bytes(of_tools).decode() if of_tools.is_file() else ""
    return ChatTemplate(
        read_bytes(folder / _TEMPLATE).decode(), str(facts.get("template")), variables, tool_use
    )


def _opened(config: Config, folder: Path) -> ChatData:
    kept = open_kept(folder)
    identity = str(kept.facts.get("tokenizer"))
    name = stored_file(identity)
    data = read_bytes(folder / name) if name is not None else b""
    tokenizer = stored_tokenizer(identity, data, str(folder / (name or MANIFEST)))
    return ChatData(config, folder.name.removeprefix("chat-"), kept, tokenizer)


def _checked(data: ChatData) -> ChatData:
    """Return the data.

    Raise UserError if no target has a loss, or if all have one although data.loss_on is not `all`.
    """
    share, settings = data.counted_share, data.config.data
    if not data.train.places.size:
        return data  # rows() raises the error
    if not share or (share == 1 and settings.loss_on != "all"):
        raise UserError(
            f"[data.loss_on] {share:.0%} of the targets contribute to the loss with data.loss_on={settings.loss_on}, "
            f"which trains on {'nothing' if not share else 'the prompts too'}; set another "
            "data.template, or data.loss_on=all"
        )
    return data


def _tokenizer_of(config: Config) -> TokenizerSource:
    """Return the tokenizer of the conversations; raise UserError if it cannot report the characters of its ids."""
    found = find_tokenizer(config.data.tokenizer, config.data.vocab_size, Access.of(config))
    if found.kind not in ("json", "bytes"):
        raise UserError(
            f"[data.tokenizer] data.pipeline=chat needs a tokenizer.json, which reports the characters of each token, "
            f"got {config.data.tokenizer} ({found.kind}); name the folder of the model that is trained"
        )
    return found.reading_names()


PIPELINE = Pipeline("chat", PARTS, prepare)
