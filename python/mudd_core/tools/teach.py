"""Write a teacher's likeliest tokens for each target of the data, from which a smaller model learns.

    python3 launch.py teach --base=SmolLM2-360M --data=chat.jsonl --top=64 --to=teacher.h5
    python3 launch.py teach --base=runs/big --data=corpus --to=teacher.h5 data.pipeline=text

The teacher reads each conversation, or each position of the text, once. `tune --teacher=FILE` and training with
loss.teacher=FILE learn from the file. A stopped or failed command leaves no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mudd_core.base.errors import StopRequestedError, UserError
from mudd_core.base.paths import local
from mudd_core.base.types import Array, Float32, Int32
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
from mudd_core.config.tool_arguments import ToolArguments, whole_number
from mudd_core.data.cache.teacher_file import Block, Key, write_teacher
from mudd_core.data.pipelines import Prepared, RowShape, prepare
from mudd_core.data.pipelines.chat import ChatData
from mudd_core.data.pipelines.taught import (
    SPLITS,
    example_parts,
    facts_of,
    ordered_rows,
    origin_of,
    window_key,
)
from mudd_core.data.tokenizers.files import has_vocabulary
from mudd_core.engine.frozen import weight_view
from mudd_core.engine.model import Model
from mudd_core.interop.load_run import load_run
from mudd_core.run.build.base import weights_sha256
from mudd_core.run.build.rows import row_shape
from mudd_core.run.loop import signals
from mudd_core.run.opened.run import Run
from mudd_core.run.store.json_files import read_saved_config
from mudd_core.run.store.run_folder import RunFolder

_LONGEST = 1024  # tokens of a sequence, as in the recipe of tune
_ROWS = 16  # targets whose logits are sorted at once


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    options, rest = _parser().read(words)

    to = local(options.to, "[teach] --to")
    if to.exists():
        raise UserError(
            f"[teach] --to: expected a new file, got {to}, which exists; delete it or name another"
        )
    run = load_run(options.base)
    config = _config_of(run, options.base, options.data, rest)
    data = prepare(config)
    origin, model = origin_of(data, "[teach] data.pipeline"), run.model
    if not origin.vocab_size <= model.config.vocab_size or not options.top < origin.vocab_size:
        raise UserError(
            f"[teach] --top: expected less than the vocabulary of the tokenizer ({origin.vocab_size:,}), which the "
            f"model covers ({model.config.vocab_size:,}), got {options.top}"
        )
    reading = _Reading(data, row_shape(config), model, options.top, origin.vocab_size)
    targets, blocks = reading.counted()
    print(f"{options.base} reads {targets:,} targets in {blocks:,} {reading.unit}", flush=True)
    sha256 = weights_sha256({name: weight_view(model.store, name) for name in model.store.names()})
    facts = facts_of(origin, sha256, options.top, config.train.seq_len)
    with signals.handlers():
        write_teacher(to, facts, targets, _until_stopped(reading.blocks()))
    print(
        f"{to}: {options.top} tokens for each target, which have {reading.mass / max(1, targets):.2%} of the "
        f"teacher's probability; {size_text(to.stat().st_size)}"
    )
    return 0


def _parser() -> ToolArguments:
    parser = ToolArguments("teach", __doc__ or "", fields="data.pipeline=text")
    parser.add_argument(
        "--base", required=True, metavar="DIR", help="the teacher: a Hugging Face model folder, or a run"
    )
    parser.add_argument("--data", required=True, metavar="FILE", help="data of the student (docs/data.md)")
    parser.add_argument(
        "--top", type=whole_number(1), default=64, metavar="K", help="tokens kept for each target; default 64"
    )
    parser.add_argument("--to", required=True, metavar="FILE", help="new HDF5 file to write")
    return parser


def _config_of(run: Run, base: str, data: str, words: Sequence[str]) -> Config:
    """Return the config of the data: conversations as in tune, or the text of a run with data.pipeline=text."""

    folder = RunFolder(local(base, "[teach] --base"))
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
    check_config(config, typed_names(overrides))
    return config


def _until_stopped(blocks: Iterator[Block]) -> Iterator[Block]:
    """Yield the blocks; raise StopRequestedError after a signal."""

    for block in blocks:
        if reason := signals.stop_reason():
            raise StopRequestedError(f"[teach] stopped by {reason}; no file was written")
        yield block


@dataclass
class _Reading:
    """A teacher's pass over the data. mass: the summed probability of the kept tokens so far."""

    data: Prepared
    shape: RowShape
    model: Model
    kept: int
    vocab_size: int
    mass: float = 0.0
    done: set[Key] = field(default_factory=set)

    @property
    def unit(self) -> str:
        """The name of a block."""

        return "examples" if isinstance(self.data, ChatData) else "sequences"

    def counted(self) -> tuple[int, int]:
        """Return (targets, blocks) of the file."""
        sizes = [int(counted.size) for _, _, counted in self._parts()]
        return sum(sizes), len(sizes)

    def blocks(self) -> Iterator[Block]:
        """Yield the rows of the file, one example or window after another."""

        last: Mapping[str, Array] | None = None
        for key, arrays, counted in self._parts():
            if arrays is not last:
                logits, last = self.model.logits(arrays)[0], arrays
            ids_NK, log_probs_NK = likeliest(logits, counted, self.kept, self.vocab_size)
            self.mass += float(np.exp(log_probs_NK.astype(np.float64)).sum())
            yield Block(key, ids_NK, log_probs_NK)

    def _parts(self) -> Iterator[tuple[Key, Mapping[str, Array], Array]]:
        """Yield for each block its name, the arrays of its sequence, and the positions of its targets."""

        self.done.clear()
        for split in SPLITS:
            rows = ordered_rows(self.data, split, self.shape)
            for sample in range(rows.rows):
                arrays = rows.arrays(sample, 1)
                if not isinstance(self.data, ChatData):
                    first = sample * self.shape.seq_len
                    key = window_key(split, first)
                    yield key, arrays, np.flatnonzero(arrays["targets"][0] >= 0)
                    continue
                for part in example_parts(arrays):
                    if part.key in self.done:
                        continue
                    self.done.add(part.key)
                    counted = np.flatnonzero(arrays["targets"][0, part.at] >= 0) + part.at.start
                    yield part.key, arrays, counted


def likeliest(logits: Float32, rows: Array, kept: int, below: int) -> tuple[Int32, Float32]:
    """Return the ids [n, kept] of the largest logits below `below`, ascending, and their log-probabilities.

    logits: [T, V]. rows: [n], the rows to read. Raise UserError for logits that are not finite.
    """
    ids, log_probs = np.empty((len(rows), kept), np.int32), np.empty((len(rows), kept), np.float32)
    for begin in range(0, len(rows), _ROWS):
        here = slice(begin, begin + _ROWS)
        found = logits[rows[here]].astype(np.float64)
        largest = found.max(-1, keepdims=True)
        log_sum = largest + np.log(np.exp(found - largest).sum(-1, keepdims=True))
        if not np.isfinite(log_sum).all():
            raise UserError("[teach] --base: expected finite logits, got a model whose logits are not finite")
        best = np.argpartition(-found[:, :below], kept - 1, axis=-1)[:, :kept]
        ids[here] = np.sort(best, axis=-1)
        log_probs[here] = np.take_along_axis(found, ids[here], -1) - log_sum
    return ids, log_probs
