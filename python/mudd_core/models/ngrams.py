"""Rows of a table for the n-grams of a sequence, which chosen layers add to the residual stream through a gate.

Maths: docs/maths/ngrams.md. Shape letters: B samples, T positions, D width, W width of a row.
"""

from __future__ import annotations

from mudd_core import nn, ops
from mudd_core.config.families import ModelConfig
from mudd_core.config.families.ngrams import orders_of, readers
from mudd_core.graph.recording import Like
from mudd_core.models.hidden import Batch, Cache

__all__ = ["TABLE", "NgramRows"]

TABLE = "ngrams.rows"  # name of the table


class NgramRows:
    """The rows of a batch. Without a table (model.ngram_rows=0) nothing is computed or declared."""

    def __init__(self, config: ModelConfig, batch: Batch, cache: Cache | None) -> None:
        self._config, self._readers = config, readers(config)
        if not config.ngram_rows:
            return
        rows, width = config.ngram_rows, config.ngram_width
        table_RW = nn.parameter(TABLE, (rows, width), role="rows", fan_in=width, fan_out=rows, init="zeros")
        rows_BTW = ops.ngram_rows(
            batch.inputs,
            table_RW,
            batch.segments if cache is None else None,
            None if cache is None else cache.ids,
            orders=",".join(orders_of(config)),
            end=config.ngram_end,
        )
        self._rows_BTW: Like = nn.sow("ngrams.out", rows_BTW)

    def added(self, x_BTD: Like, layer: int) -> Like:
        """Return x + (silu(rms_norm(x) Wgate) * rows) Wout before a layer that reads the rows, else x."""
        if layer not in self._readers:
            return x_BTD
        width, depth = self._config.ngram_width, self._config.d_model
        with nn.part(f"blocks.{layer}.ngrams"):
            a_BTD = nn.rms_norm(x_BTD, "norm", eps=self._config.norm_eps)
            # Wout has role mix: its fan-in W does not depend on the width of the model, nor does its rate in muP.
            gate_BTW = nn.sow("gate", nn.linear(a_BTD, "gate", width, std=depth**-0.5))
            u_BTW = nn.sow("inner", ops.glu(gate_BTW, self._rows_BTW, activation="silu"))
            return nn.branch(
                "out",
                x_BTD,
                lambda residual: nn.linear(
                    u_BTW, "out", depth, std=width**-0.5, role="mix", residual=residual
                ),
            )
