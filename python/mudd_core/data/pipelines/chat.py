"""The pipeline `chat`: conversations rendered by a chat template, with a loss on the assistant's turns.

Whole examples are packed by best fit into sequences. Each example is a segment with positions from 0.
"""

from __future__ import annotations

from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.paths import from_here
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.types import JsonObject
from mudd_core.config import Config
from mudd_core.data.cache.folder import locked
from mudd_core.data.chat.build import Build
from mudd_core.data.chat.kept import MANIFEST, open_kept, write_kept
from mudd_core.data.chat.kept_template import template_files
from mudd_core.data.chat.renderer import bound_for
from mudd_core.data.chat.templates import find_template
from mudd_core.data.formats.format import dropped_note
from mudd_core.data.pipelines.chat_data import ChatData
from mudd_core.data.pipelines.chat_rows import PARTS
from mudd_core.data.pipelines.ids_data import fingerprint_of
from mudd_core.data.progress import ConsoleProgress
from mudd_core.data.rows import Pipeline, Preparation
from mudd_core.data.sources.access import Access, local_root
from mudd_core.data.sources.notes import drop_notes, keep_notes, note_of, require_unchanged
from mudd_core.data.sources.splits import sources_of
from mudd_core.data.tokenizers.source import TokenizerSource, find_tokenizer, stored_file, stored_tokenizer


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
    progress = how.progress or ConsoleProgress(what=f"rendering conversations into {from_here(folder)}")
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
    beside = template_files(build.template)
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
