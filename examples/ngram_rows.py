"""Transformer++ with tables of rows for n-grams: a hash of the last tokens selects a row, a small gate scales it.

Rate and weight decay of the tables: --optim.decay=no_norm_no_bias "--optim.groups=adamw: rows.*, lr_factor=8,
weight_decay=0.01; adamw: embed, head, weight_decay=0".
"""

from __future__ import annotations

from dataclasses import dataclass

import mudd_core as mc
from mudd_core import nn, ops
from mudd_core.config.families.spans import layers_of
from mudd_core.graph.recording import Like


@dataclass(frozen=True)
class NgramRows(mc.FamilyConfig):
    """Sizes as in Transformer++."""

    orders: str = mc.opt("2,3", "lengths of the n-grams; 1 = one row for each token of the vocabulary")
    rows: int = mc.opt(65536, "rows in the table of each length above 1", "rows", low=1, high=2**31 - 1)
    row_width: int = mc.opt(64, "width of a row", "channels", low=1)
    row_layers: str = mc.opt("", "layers that read the rows, such as 0,2-3; empty = all")
    row_place: str = mc.opt(
        "stream",
        "stream = added to the residual stream before the layer; values = to the values of its attention",
        choices=("stream", "values"),
    )
    gate: bool = mc.opt(True, "multiply the channels of a row by silu(x W)")
    end_id: int = mc.opt(-1, "token that ends a document: no n-gram crosses it; -1 = none", low=-1)

    def lengths(self) -> list[int]:
        """Return the lengths of the n-grams."""
        return [int(length) for length in self.orders.split(",")]

    def faults(self) -> list[str]:
        """Return the broken rules between fields, one message each."""
        faults = super().faults()
        names = self.orders.split(",")
        if not set(names) <= {"1", "2", "3"} or len(set(names)) < len(names):
            faults.append(f"model.orders: expected different lengths such as 2,3, got '{self.orders}'")
        try:
            layers_of(self.row_layers, self.n_layer)
        except ValueError as error:
            faults.append(f"model.row_layers: {error}")
        return faults


def rows_of(config: NgramRows, batch: mc.Batch) -> Like:
    """Return the sum [B, T, row_width] of the rows of all lengths; they are zero at the start."""
    width, found = config.row_width, None
    for order in config.lengths():
        ids, count = batch.inputs, config.vocab_size
        if order > 1:
            count = config.rows
            ids = ops.ngram_ids(ids, batch.segments, order=order, rows=count, end=config.end_id)
        table = nn.parameter(
            f"rows.{order}", (count, width), role="embedding", fan_in=width, fan_out=count, init="zeros"
        )
        found = ops.embedding(ids, table, residual=found)
    assert found is not None
    return found


def added_rows(config: NgramRows, rows: Like, gated_by: Like, width: int, y: Like) -> Like:
    """Return y + (silu(x W_gate) * rows) W_out for x = gated_by."""
    with nn.part("rows"):
        if config.gate:
            gate = nn.linear(gated_by, "gate", config.row_width, std=config.init_std)
            rows = ops.glu(gate, rows, activation="silu")
        return nn.linear(rows, "out", width, std=config.init_std, residual=y)


def attention(config: NgramRows, x: Like, batch: mc.Batch, rows: Like | None) -> Like:
    """Return x + Attn(rms_norm(x)). rows: added to the values, or None."""
    sizes, longest, std = config.settled(), batch.max_positions(config), config.init_std
    heads = {"q": config.n_head, "k": sizes.n_kv_head, "v": sizes.n_kv_head}
    a = nn.rms_norm(x, "norm", eps=config.norm_eps)
    q, k, v = (nn.linear(a, name, count * sizes.d_head, std=std) for name, count in heads.items())
    if rows is not None:
        v = added_rows(config, rows, a, sizes.n_kv_head * sizes.d_head, v)
    q, k = (
        ops.rope(h, batch.positions, n_head=n, base=config.rope_base, max_positions=longest)
        for h, n in ((q, config.n_head), (k, sizes.n_kv_head))
    )
    seen = {"segments": batch.segments, "key_mask": batch.key_mask}
    o = ops.attention(q, k, v, n_head=config.n_head, n_kv_head=sizes.n_kv_head, **seen)
    return nn.linear(o, "o", config.d_model, std=std, residual=x)


def model(config: NgramRows, batch: mc.Batch) -> mc.Hidden:
    """Return the final states for the token ids. There is no cache, because ngram_ids needs whole sequences."""
    std, eps = config.init_std, config.norm_eps
    readers = layers_of(config.row_layers, config.n_layer)
    x = nn.embedding(batch.inputs, "embed", config.vocab_size, config.d_model, std=std)
    rows = rows_of(config, batch)
    for layer in range(config.n_layer):
        with nn.part(f"blocks.{layer}.attn"):
            values = rows if layer in readers and config.row_place == "values" else None
            if layer in readers and config.row_place == "stream":
                x = added_rows(config, rows, nn.rms_norm(x, "row_norm", eps=eps), config.d_model, x)
            x = attention(config, x, batch, values)
        with nn.part(f"blocks.{layer}.ffn"):
            f = nn.rms_norm(x, "norm", eps=eps)
            gate, up = (nn.linear(f, name, config.d_ff, std=std) for name in ("gate", "up"))
            x = nn.linear(ops.glu(gate, up, activation="silu"), "down", config.d_model, std=std, residual=x)
    return mc.Hidden(nn.rms_norm(x, "final_norm", eps=eps), nn.head(config, std=std))


mc.register_family(NgramRows, model)
