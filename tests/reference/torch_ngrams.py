"""A reference model with rows of n-grams in its stream, around the reference of any family (docs/maths/ngrams.md)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from reference.numpy_ngrams import signed_rows
from reference.torch_models import Batch, Config, Params, model_logits, parameter_shapes, rms_norm


@dataclass(frozen=True)
class WithNgrams:
    """A family with a table. layers: those that read its rows."""

    inner: Config
    depth: int
    rows: int
    width: int
    orders: str
    layers: tuple[int, ...]
    eps: float
    end: int = -1

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return self.inner.vocab_size

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter by name."""
        shapes: dict[str, tuple[int, ...]] = dict(parameter_shapes(self.inner))
        shapes["ngrams.rows"] = (self.rows, self.width)
        for layer in self.layers:
            part = f"blocks.{layer}.ngrams"
            shapes[f"{part}.norm.gain"] = (self.depth,)
            shapes[f"{part}.gate.w"] = (self.depth, self.width)
            shapes[f"{part}.out.w"] = (self.width, self.depth)
        return shapes

    def logits(self, p: Params, batch: Batch) -> Tensor:
        """Return logits [B, T, V]."""
        tokens = batch.tokens.numpy()
        segments = None if batch.segments is None else batch.segments.numpy()
        table = p["ngrams.rows"]
        looked_up = torch.zeros((*tokens.shape, self.width), dtype=table.dtype)
        for row, sign in signed_rows(tokens, segments, self.rows, orders=self.orders, end=self.end):
            looked_up = (
                looked_up + torch.from_numpy(sign).to(table.dtype) * table[torch.from_numpy(row).long()]
            )

        def named(name: str, value: Tensor) -> Tensor:
            value = batch.named(name, value)
            layer = self._layer_after(name)
            return value if layer not in self.layers else value + self._read(p, layer, value, looked_up)

        return model_logits(p, dataclasses.replace(batch, named=named), self.inner)

    def _layer_after(self, name: str) -> int:
        """Return the layer whose input is a value; -1 for other values."""
        if name == "embed.out":
            return 0
        parts = name.split(".")
        return int(parts[1]) + 1 if len(parts) == 3 and parts[0] == "blocks" and parts[2] == "out" else -1

    def _read(self, p: Params, layer: int, x: Tensor, rows: Tensor) -> Tensor:
        part = f"blocks.{layer}.ngrams"
        a = rms_norm(x, p[f"{part}.norm.gain"], self.eps)
        return (F.silu(a @ p[f"{part}.gate.w"]) * rows) @ p[f"{part}.out.w"]
