"""The sequences of the sources of a mixture before its start; no cache is built for them and no file is written.

They are counted in token caches that exist and in files of ids, or estimated from the sizes of text files.
"""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.config import Config
from mudd_core.config.mix_sources import source_config, source_names
from mudd_core.config.pipelines import spec_of
from mudd_core.data.pipelines.cache_plan import source_cache
from mudd_core.data.pipelines.existing import existing_data
from mudd_core.data.pipelines.mixture.ends import Sized
from mudd_core.data.pipelines.mixture.names import naming
from mudd_core.data.pipelines.mixture.tokenizer import trained_config
from mudd_core.data.rows import PrepareOne, RowShape


@dataclass(frozen=True)
class Estimated:
    """The number of sequences of a source in an epoch, estimated from its tokens. batch_size: sequences per update."""

    rows: int
    batch_size: int

    def batches(self, epochs: int) -> int:
        """Return the number of whole batches in `epochs` epochs."""
        return epochs * self.rows // self.batch_size


def sizes_before_start(config: Config, shape: RowShape, prepare_one: PrepareOne) -> list[Sized | None]:
    """Return the sequences of each source of data.mix; None if only reading its text or fetching it shows the number.

    Raise UserError if a source cannot be read, as a start does.
    """
    names, trained = source_names(config), trained_config(config)
    found: list[Sized | None] = []
    for name in names:
        with naming(name):
            counted = None if trained is None else _counted(source_config(trained, name), shape, prepare_one)
        found.append(counted or _estimated(source_cache(config, trained, name).tokens, shape))
    return found


def _counted(config: Config, shape: RowShape, prepare_one: PrepareOne) -> Sized | None:
    """Return the sequences of a source; None if a start would read or fetch its text."""
    if (data := existing_data(config, prepare_one)) is None:
        return None
    # its sequences would be computed for all passes, and kept in files
    if spec_of(config.data.pipeline).mixes_epochs:
        return _estimated(data.train_tokens, shape)
    return data.rows("train", shape)


def _estimated(tokens: int, shape: RowShape) -> Estimated | None:
    """Return the sequences of this many training tokens; None if their number is unknown."""
    return Estimated(max(1, (tokens - 1) // shape.seq_len), shape.batch_size) if tokens else None
