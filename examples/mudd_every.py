"""A MUDD variant with dense connections only after every n-th block or late ones; other blocks pass their states on."""

from __future__ import annotations

from dataclasses import dataclass

import mudd_core as mc
from mudd_core import nn
from mudd_core.config import MUDDFormerConfig
from mudd_core.models.dense_connections import divided, final, source, undivided
from mudd_core.models.muddformer import block


@dataclass(frozen=True)
class MuddEvery(MUDDFormerConfig):
    """A MUDDFormer with mixtures after blocks every - 1, 2 every - 1, ... and the last one, from block first - 1 on."""

    every: int = mc.opt(2, "blocks from one mixture to the next", "blocks", low=1)
    first: int = mc.opt(1, "number of blocks before the first mixture", "blocks", low=1)


def model(config: MuddEvery, batch: mc.Batch, cache: mc.Cache | None = None) -> mc.Hidden:
    """Return the final states for the token ids."""
    x = nn.embedding(batch.inputs, "embed", config.vocab_size, config.d_model, std=config.init_std)
    states, inputs = [source(config, x, 0)], undivided(config, x, 0)
    for layer in range(config.n_layer):
        x, _ = block(config, inputs, batch, cache, layer)
        states.append(source(config, x, layer + 1))
        if layer + 1 == config.n_layer:
            break
        mixes = layer + 1 >= config.first and (layer + 1) % config.every == 0
        inputs = divided(config, states, x, layer) if mixes else undivided(config, x, layer + 1)
    return mc.Hidden(final(config, states, x), nn.head(config, std=config.init_std))


mc.register_family(MuddEvery, model)
