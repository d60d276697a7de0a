"""A teacher file: its data, its teacher, and what was written."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.paths import local
from mudd_core.base.units import size_text
from mudd_core.config import (
    Config,
    DataConfig,
    TrainConfig,
    apply_overrides,
    check_config,
    split_words,
    typed_names,
)
from mudd_core.data.cache.teacher_file import write_teacher
from mudd_core.data.pipelines import prepare
from mudd_core.data.pipelines.taught import facts_of, origin_of
from mudd_core.data.tokenizers.files import has_vocabulary
from mudd_core.engine.frozen import weight_view
from mudd_core.interop.load_run import load_run
from mudd_core.run.build.base import weights_sha256
from mudd_core.run.build.rows import row_shape
from mudd_core.run.opened.run import Run
from mudd_core.run.store.json_files import read_saved_config
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.tools.teach.reading import Reading

TOP = 64  # tokens kept for each target by default
_LONGEST = 1024  # tokens of a sequence, as in the recipe of tune


@dataclass(frozen=True)
class Teacher:
    """A file that mc.teach wrote: `mc.tune(..., loss_teacher=teacher.file)`.

    targets: the number of targets. top: tokens kept for each. probability: the mean over the targets of the summed
    probability of these tokens. text: the command's sentence.
    """

    file: Path
    targets: int
    top: int
    probability: float
    text: str

    def __repr__(self) -> str:
        return f"Teacher('{self.text}')"


def written(
    options: Namespace, words: Sequence[str], opened: Run | None = None, *, shown: bool = True
) -> Teacher:
    """Write the file of a teacher, and return its description.

    options: of the command. words: overrides. opened: the run of --base, if it is open. shown: print what is written
    and the progress. Raise UserError for unusable data, fields, teachers and files; SaveError if writing fails.
    """
    to = local(options.to, "[teach] --to")
    if to.exists():
        raise UserError(
            f"[teach] --to: expected a new file, got {to}, which exists; delete it or name another"
        )
    run = opened or load_run(options.base)
    config = _config_of(run, options.base, options.data, words)
    data = prepare(config)
    origin, model = origin_of(data, "[teach] data.pipeline"), run.model
    if not origin.vocab_size <= model.config.vocab_size or not options.top < origin.vocab_size:
        raise UserError(
            f"[teach] --top: expected less than the vocabulary of the tokenizer ({origin.vocab_size:,}), which the "
            f"model covers ({model.config.vocab_size:,}), got {options.top}"
        )
    reading = Reading(data, row_shape(config), model, options.top, origin.vocab_size)
    targets, blocks = reading.counted()
    if shown:
        print(f"{options.base} reads {targets:,} targets in {blocks:,} {reading.unit}", flush=True)
    sha256 = weights_sha256({name: weight_view(model.store, name) for name in model.store.names()})
    facts = facts_of(origin, sha256, options.top, config.train.seq_len)
    write_teacher(to, facts, targets, reading.shown_blocks(blocks) if shown else reading.blocks())
    share = reading.mass / max(1, targets)
    text = (
        f"{to}: {options.top} tokens for each target, which have {share:.2%} of the teacher's probability; "
        f"{size_text(to.stat().st_size)}"
    )
    if shown:
        print(text)
    return Teacher(to, targets, options.top, share, text)


def _config_of(run: Run, base: str, data: str, words: Sequence[str]) -> Config:
    """Return the config of the data: conversations as in tune, or the text of a run with data.pipeline=text."""
    folder, _ = RunFolder.holding(local(base, "[teach] --base"))
    model = run.model.config
    is_run = folder.is_own_run
    places = (folder.imported_folder, folder.path)
    found = [place for place in places if has_vocabulary(place)]
    saved = read_saved_config(folder) if is_run else Config()
    settings = DataConfig(
        pipeline="chat", path=data, tokenizer=str(found[0]) if found else saved.data.tokenizer
    )
    train = TrainConfig(seq_len=min(model.max_seq_len, _LONGEST))
    if is_run and any(word.endswith("data.pipeline=text") for word in words):
        settings, train = replace(saved.data, path=data), TrainConfig(seq_len=saved.train.seq_len)
    config = Config(name="teach", model=model, data=settings, train=train)
    overrides = split_words(list(words), config)
    config = apply_overrides(config, overrides)
    if config.model != model:
        raise UserError("[teach] model: the base decides the model; leave its fields out")
    check_config(config, typed_names(overrides))
    return config
