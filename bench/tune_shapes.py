"""The models that bench_tune.py tunes: the sizes of well-known models, with random weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

RANK, ALPHA, LR = 16, 32, 2e-4  # for adapters on all linear layers except the head
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@dataclass(frozen=True)
class TuneShape:
    """A model of transformers.

    kind: its class. fields: the fields of its config. A step has B sequences of T tokens. targets: the layers with
    adapters, for PEFT; mudd_core adapts the same ones by default.
    """

    name: str
    kind: str
    fields: dict[str, Any] = field(repr=False)
    T: int = 512
    B: int = 4
    targets: str = "all-linear"

    @property
    def V(self) -> int:
        """Vocabulary size."""
        return int(self.fields["vocab_size"])

    @property
    def tokens(self) -> int:
        """Number of tokens in one step."""
        return self.B * self.T


def _sizes(
    vocab: int, width: int, inner: int, layers: int, heads: int, kv: int, **more: Any
) -> dict[str, Any]:
    return {
        "vocab_size": vocab,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        **more,
    }


def _rope(theta: float) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": theta}


TUNE_SHAPES = {
    s.name: s
    for s in (
        TuneShape("tiny", "Llama", _sizes(512, 64, 160, 2, 4, 2, max_position_embeddings=64), 64),
        TuneShape(
            "SmolLM2-135M",
            "Llama",
            _sizes(49152, 576, 1536, 30, 9, 3, max_position_embeddings=8192, rope_parameters=_rope(1e5)),
        ),
        TuneShape(
            "Qwen3-0.6B",
            "Qwen3",
            _sizes(
                *(151936, 1024, 3072, 28, 16, 8),
                head_dim=128,
                max_position_embeddings=40960,
                rope_parameters=_rope(1e6),
            ),
        ),
        TuneShape(
            "Llama-3.2-1B",
            "Llama",
            _sizes(
                *(128256, 2048, 8192, 16, 32, 8),
                head_dim=64,
                max_position_embeddings=131072,
                rope_parameters=_LLAMA3,
            ),
            B=1,
        ),
        TuneShape(
            "gemma-3-270m",
            "Gemma3Text",
            _sizes(
                *(262144, 640, 2048, 18, 4, 1),
                head_dim=256,
                query_pre_attn_scalar=256,
                max_position_embeddings=32768,
                sliding_window=512,
                layer_types=[*["sliding_attention"] * 5, "full_attention"] * 3,
                rope_parameters={"sliding_attention": _rope(1e4), "full_attention": _rope(1e6)},
            ),
        ),
        TuneShape(
            "Qwen3-MoE-small",
            "Qwen3Moe",
            _sizes(
                *(32768, 512, 1536, 8, 8, 2),
                head_dim=64,
                max_position_embeddings=4096,
                rope_parameters=_rope(1e6),
                moe_intermediate_size=192,
                num_experts=64,
                num_experts_per_tok=8,
                norm_topk_prob=True,
                mlp_only_layers=[],
                decoder_sparse_step=1,
            ),
            targets=r".*\.[qkvo]_proj",
        ),
    )
}
