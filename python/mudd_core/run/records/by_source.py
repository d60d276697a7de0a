"""The metrics of each source of a mixture (data.mix), which have names such as val_loss/web in metrics.jsonl."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mudd_core.base.types import Json

_SHOWN = 3  # sources whose losses are in the line of a validation


class SourceLoss(NamedTuple):
    """A loss over the sequences of a source. loss: mean nats per target, NaN without targets. targets: their number.

    bits_per_byte: bits per byte of the source's text; None if the bytes per target are unknown.
    """

    loss: float
    bits_per_byte: float | None
    targets: int

    def line(self, name: str) -> str:
        """Return a line for the user. name: of the source."""
        bits = "" if self.bits_per_byte is None else f", {self.bits_per_byte:.6f} bits per byte"
        return f"source {name}: loss {self.loss:.6f}{bits}, {self.targets:,} targets"


LossBySource = Mapping[str, SourceLoss]


def loss_columns(losses: LossBySource, prefix: str = "") -> dict[str, Json]:
    """Return the losses as entries of metrics.jsonl. prefix: of the names of a validation, `val_`.

    They are None without targets. Bits per byte are included only if they are known.
    """
    columns: dict[str, Json] = {}
    for name, one in losses.items():
        columns[f"{prefix}loss/{name}"] = one.loss if one.targets else None
        if one.bits_per_byte is not None:
            columns[f"{prefix}bits_per_byte/{name}"] = one.bits_per_byte if one.targets else None
    return columns


def count_columns(
    names: Sequence[str], sequences: Sequence[int], epochs: Sequence[float], seq_len: int
) -> dict[str, Json]:
    """Return what a run has read of each source, as entries of metrics.jsonl: tokens, epochs and share of all tokens.

    sequences, epochs: of each source so far. Epochs are left out for a stream, whose size is unknown (NaN).
    """
    whole = max(1, sum(sequences))
    columns: dict[str, Json] = {}
    for name, count, passes in zip(names, sequences, epochs, strict=True):
        columns[f"tokens/{name}"] = count * seq_len
        if passes == passes:
            columns[f"epochs/{name}"] = passes
        columns[f"share/{name}"] = count / whole
    return columns


def sources_in(columns: Iterable[str]) -> list[str]:
    """Return the names of the sources that columns of metrics.jsonl have, in their order."""
    found = [name.partition("/") for name in columns]
    return list(
        dict.fromkeys(source for column, _, source in found if column in ("share", "val_loss") and source)
    )


def shown(losses: LossBySource) -> str:
    """Return the losses of the first sources as text; empty without sources."""
    parts = [f"{name} {one.loss:.4f}" for name, one in list(losses.items())[:_SHOWN]]
    more = [f"{len(losses) - _SHOWN} more"] if len(losses) > _SHOWN else []
    return ", ".join([*parts, *more])
