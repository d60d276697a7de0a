"""Print the sequences of a training step as text.

For each sequence the command prints inputs, targets and segments, and the targets that have no loss; for a mixture
(data.mix) also the source.

    python3 launch.py data show --config=small.py --step=12 data.path=corpus
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Array
from mudd_core.config.mix_sources import source_names
from mudd_core.config.tool_arguments import ToolArguments, whole_number
from mudd_core.tools.named_config import add_config_or_run, fingerprint_of_run, named_config

if TYPE_CHECKING:
    from mudd_core.config import Config
    from mudd_core.data.rows import Rows
    from mudd_core.data.tokenizers.tokenizer import Tokenizer

_LAST_STEP = 2**31 - 1


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    asked, rest = (parser := _parser()).read(words)
    from mudd_core.data.pipelines import prepare
    from mudd_core.data.pipelines.mixture.rows import sources_of
    from mudd_core.run.build.rows import training_rows

    config = named_config(parser, asked, rest, needs_model=False)
    data = prepare(config, fingerprint=fingerprint_of_run(asked.workdir))
    size = config.train.batch_size
    first = (asked.step - 1) * size
    rows = training_rows(config, data)
    _require_step(asked.step, config, rows)
    arrays, sources, names = rows.arrays(first, size), sources_of(rows, first, size), source_names(config)
    for row in range(size):
        of_source = "" if sources is None else f", source {names[sources[row]]}"
        print(f"sample {first + row:,}, row {row} of step {asked.step}{of_source}")
        for line in row_lines({name: array[row] for name, array in arrays.items()}, data.tokenizer):
            print(f"  {line}")
    return 0


def _require_step(step: int, config: Config, rows: Rows) -> None:
    """Raise UserError for a step after the end of the data, or of the run."""
    data, train = config.data, config.train
    whole = rows.batches(0) if data.mix and not data.repeat_batch else None
    if whole is not None and step > whole:
        raise UserError(
            f"[arguments] --step: expected at most {whole:,}, the last step before the mixture ends "
            f"(data.mix_until={data.mix_until}), got {step:,}"
        )
    last = rows.batches(train.epochs) if train.epochs else train.steps
    if last is not None and step > last:
        name = "train.epochs" if train.epochs else "train.steps"
        raise UserError(
            f"[arguments] --step: expected at most {last:,}, the last step of the run ({name}="
            f"{train.epochs or train.steps}), got {step:,}; a larger {name} shows later steps"
        )


def _parser() -> ToolArguments:
    parser = ToolArguments("data show", __doc__ or "", fields="data.path=FILE", run="--workdir")
    add_config_or_run(parser)
    parser.add_argument(
        "--step",
        type=whole_number(1, _LAST_STEP),
        default=1,
        metavar="N",
        help="step whose batch is shown; default 1",
    )
    return parser


def row_lines(row: Mapping[str, Array], tokenizer: Tokenizer | None) -> Iterator[str]:
    """Yield lines about one sequence. tokenizer: None prints ids."""
    counted = int((row["targets"] >= 0).sum())
    padding = _padding(row)
    inputs = row["inputs"][: len(row["inputs"]) - padding]
    yield f"inputs   {_shown(inputs, tokenizer)}{f' [{padding} of padding]' if padding else ''}"
    yield f"targets  {_targets(row['targets'].tolist(), tokenizer)}"
    yield f"counted  {counted} of {len(row['targets'])} targets"
    for name in ("segments", "key_mask"):
        if name in row:
            runs = ((value, len(list(run))) for value, run in groupby(row[name].tolist()))
            yield f"{name:<8} {' '.join(f'{value}x{length}' for value, length in runs)}"
    if "segments" in row and tokenizer is not None:
        from mudd_core.data.chat.masks import segment_lines

        yield from segment_lines(row, tokenizer.decode)


def _padding(row: Mapping[str, Array]) -> int:
    """Return the number of positions after the last segment of a sequence."""
    if "segments" not in row or not row["segments"].any():
        return 0
    return len(row["segments"]) - 1 - int(np.flatnonzero(row["segments"])[-1])


def _shown(ids: Iterable[int], tokenizer: Tokenizer | None) -> str:
    return repr(tokenizer.decode(ids)) if tokenizer is not None else " ".join(map(str, ids))


def _targets(targets: list[int], tokenizer: Tokenizer | None) -> str:
    """Return the targets with a loss as text, with the number of ignored targets between them."""
    parts = []
    for counts, run in groupby(targets, key=lambda target: target >= 0):
        ids = list(run)
        parts.append(_shown(ids, tokenizer) if counts else f"[{len(ids)} ignored]")
    return " ".join(parts)
