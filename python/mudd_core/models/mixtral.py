"""Mixtral: Transformer++ with a mixture of experts as feed-forward part; Qwen3-MoE with norms of query and key heads.

Maths: docs/maths/moe.md.
"""

from __future__ import annotations

from mudd_core import nn
from mudd_core.config.families import MixtralConfig as Config
from mudd_core.models.experts import auxiliary, experts
from mudd_core.models.hidden import Batch, Cache, Hidden
from mudd_core.models.ngrams import NgramRows
from mudd_core.models.transformer_pp import AttentionOptions, attention

__all__ = ["Config", "model"]


def model(config: Config, batch: Batch, cache: Cache | None = None) -> Hidden:
    """Return the final states for token ids, with the routers' statistics for the auxiliary losses."""
    std = config.init_std
    x_BTD = nn.embedding(batch.inputs, "embed", config.vocab_size, config.d_model, std=std)
    x_BTD = nn.sow("embed.out", x_BTD)
    metrics, options = [], AttentionOptions(qk_norm=config.qk_norm)
    ngrams = NgramRows(config, batch, cache)
    for layer in range(config.n_layer):
        x_BTD = ngrams.added(x_BTD, layer)
        with nn.part(f"blocks.{layer}"):
            x_BTD = nn.sow("mid", attention(config, x_BTD, batch, cache, layer, options))
            with nn.part("ffn"):
                m_BTD = nn.sow("in", nn.rms_norm(x_BTD, "norm", eps=config.norm_eps))
                x_BTD, of_layer = experts(config, m_BTD, x_BTD, batch, cache, layer)
            x_BTD = nn.sow("out", x_BTD)
            metrics.append(of_layer)
    h_BTD = nn.rms_norm(x_BTD, "final_norm", eps=config.norm_eps)
    return Hidden(nn.sow("final_norm.out", h_BTD), nn.head(config, std=std), aux=auxiliary(config, metrics))
