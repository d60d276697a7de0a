"""The pipeline `text`: sequences over the concatenated documents of a corpus."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from mudd_core.base.errors import UserError
from mudd_core.base.units import size_text
from mudd_core.config import Config
from mudd_core.config.data import DataConfig
from mudd_core.data.batcher import Batcher
from mudd_core.data.cache.folder import saved_cache
from mudd_core.data.documents.origins import Place
from mudd_core.data.documents.plain_text import files_of, text_cache
from mudd_core.data.documents.round_trip import loss_note
from mudd_core.data.documents.source import Frame
from mudd_core.data.pipelines.document_data import DocumentData, documents_of
from mudd_core.data.rows import Pipeline, Preparation, RowShape
from mudd_core.data.sources.access import Access, local_root
from mudd_core.data.sources.corpus import Split
from mudd_core.data.sources.listing import NoFilesError
from mudd_core.data.sources.selection import holds_records
from mudd_core.data.sources.splits import chosen_files
from mudd_core.data.tokenizers.special_tokens import END_OF_TEXT


@dataclass(frozen=True)
class TextData(DocumentData):
    """Concatenated documents, each followed by EOS."""

    frame: ClassVar[Frame] = "end"
    hold_out: ClassVar[bool] = True

    @property
    def valid_bytes_per_target(self) -> float:
        """The average bytes of validation text for each target; raise UserError if there are no targets.

        It is 0 if the tokenizer loses text, because then the targets do not cover all bytes.
        """
        n_targets = self.cache.n_valid_tokens - 1
        if n_targets < 1:
            raise UserError(
                f"[data] the validation split has {max(0, n_targets + 1)} tokens and needs 2; use more text"
            )
        return 0.0 if loss_note(self.cache) else self.cache.valid_bytes / n_targets

    @property
    def train_bytes_per_target(self) -> float:
        """The average bytes of training text for each target; 0 if the tokenizer loses text."""
        place = self.cache.train
        return 0.0 if loss_note(self.cache) else place.text_bytes / max(1, place.count - 1)

    def rows(self, split: Split, shape: RowShape) -> Batcher:
        return Batcher(self.cache, split, shape.seq_len, shape.seed, shape.batch_size, places=self.places)

    def places(self, numbers: Collection[int]) -> dict[int, Place]:
        """Return the places of training documents by their numbers, as DocumentData.places does."""
        if reads_records(self.config.data, resumed=True):
            return super().places(numbers)
        return files_of(self.config.data, self.cache, numbers)

    def outline(self) -> str:
        """Return the number, size and end of the documents of data.path, and which of them validate."""
        train, valid = self.cache.train, self.cache.valid
        if not self.config.data.path or not valid.documents:
            return ""
        count = train.documents + valid.documents
        size = train.text_bytes + valid.text_bytes
        is_one = Path(self.config.data.path).expanduser().is_file()
        if self.config.data.document == "file" and is_one and not self.config.data.eval_path:
            return f"one file, whose last {valid.text_bytes / size:.0%} are held out"
        own = self.config.data.tokenizer in ("bpe", "bytes")
        end = f"id {self.tokenizer.eos_id}" if self.tokenizer and not own else END_OF_TEXT
        held = f"{valid.documents:,} held out"
        return f"{count:,} documents of about {size_text(size / count)}, each ended by {end}, {held}"

    def describe(self) -> list[str]:
        """Return lines about cache, corpus, tokenizer and the two splits."""
        cache, lines = self.cache, super().describe()
        lines[1] = f"corpus      SHA-256 {cache.corpus_hash}"
        for number, place in ((3, cache.train), (4, cache.valid)):
            lines[number] += f" ({place.text_bytes / max(1, place.count):.2f} bytes a token)"
        if note := loss_note(cache):
            lines.append(f"warning     {note}")
        return lines


def prepare(config: Config, how: Preparation) -> TextData:
    """Return the sequences over text files, or over the text of records in other formats."""
    if (saved := saved_cache(local_root(config.data.cache_dir), how.fingerprint)) is not None:
        return TextData(config, saved)
    if reads_records(config.data, resumed=how.fingerprint is not None):
        return TextData(config, documents_of(config, how, TextData))
    if config.data.bad_records == "drop":
        raise UserError(
            "[data.bad_records] plain files of text have no records that can be dropped; expected fail, or a path of "
            "jsonl, Parquet, Arrow, TFRecord or ArrayRecord files"
        )
    return TextData(config, text_cache(config.data, how, Access.of(config)))


def reads_records(settings: DataConfig, *, resumed: bool) -> bool:
    """Return in_records(); False for a run of an earlier version that read a folder of records and prose as text."""
    try:
        return in_records(settings)
    except UserError:
        if resumed:
            return False
        raise


def in_records(settings: DataConfig) -> bool:
    """Return whether the readers in data/formats read the documents; otherwise the files are plain text."""
    if settings.eval_path or settings.eval_match or settings.format not in ("auto", "text"):
        return True
    if not settings.path or settings.format == "text":
        return False
    try:
        path = Path(settings.path).expanduser()
    except RuntimeError:  # `~NAME` of an unknown user; the listing reports the error
        return False
    if "\0" in settings.path:
        return False
    if not path.exists():
        return "*" in settings.path or "," in settings.path
    if path.is_file():
        return holds_records(path, settings.column)
    try:
        return chosen_files(settings, "path").records
    except NoFilesError:  # the listing of the text reports the error
        return False


PIPELINE = Pipeline("text", (), prepare)
