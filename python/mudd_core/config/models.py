"""Configs of the model families; `family` picks the page in models/. A new family is a new class here."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.config.fields import opt


@dataclass(frozen=True)
class TransformerPPConfig:
    """Transformer++ (Llama): RMSNorm, rotary positions, SwiGLU, grouped key and value heads, no biases."""

    family: str = opt("transformer_pp", "model family", choices=("transformer_pp",))
    vocab_size: int = opt(0, "vocabulary of the embedding and head; 0 = from the tokenizer", "tokens", low=0)
    max_seq_len: int = opt(0, "longest window the model is built for; 0 = train.seq_len", "tokens", low=0)
    d_model: int = opt(256, "width of the residual stream", "channels", low=1)
    n_layer: int = opt(6, "number of blocks", "blocks", low=1)
    n_head: int = opt(4, "query heads", "heads", low=1)
    n_kv_head: int = opt(0, "key and value heads; 0 = n_head", "heads", low=0)
    d_head: int = opt(0, "width of a head; 0 = d_model / n_head", "channels", low=0)
    d_ff: int = opt(704, "inner width of the feed-forward block", "channels", low=1)
    rope_base: float = opt(10000.0, "base of the rotary wavelengths", low=1.0)
    norm_eps: float = opt(1e-6, "added to the mean square in RMSNorm", low=0.0)
    tie_embeddings: bool = opt(False, "the head shares the embedding's matrix")
    init_std: float = opt(0.02, "standard deviation of the initial matrices", low=0.0)


@dataclass(frozen=True)
class GPT2Config:
    """GPT-2: LayerNorm, learned positions, gelu_new, biases, the head tied to the embedding, no dropout."""

    family: str = opt("gpt2", "model family", choices=("gpt2",))
    vocab_size: int = opt(0, "vocabulary of the embedding and head; 0 = from the tokenizer", "tokens", low=0)
    max_seq_len: int = opt(0, "number of learned positions; 0 = train.seq_len", "tokens", low=0)
    d_model: int = opt(256, "width of the residual stream", "channels", low=1)
    n_layer: int = opt(6, "number of blocks", "blocks", low=1)
    n_head: int = opt(4, "attention heads", "heads", low=1)
    n_kv_head: int = opt(0, "key and value heads; 0 = n_head", "heads", low=0)
    d_head: int = opt(0, "width of a head; 0 = d_model / n_head", "channels", low=0)
    d_ff: int = opt(1024, "inner width of the feed-forward block", "channels", low=1)
    norm_eps: float = opt(1e-5, "added to the variance in LayerNorm", low=0.0)
    tie_embeddings: bool = opt(True, "the head shares the embedding's matrix")
    init_std: float = opt(0.02, "standard deviation of the initial matrices and embeddings", low=0.0)


ModelConfig = TransformerPPConfig | GPT2Config
FAMILIES: dict[str, type[TransformerPPConfig] | type[GPT2Config]] = {
    "transformer_pp": TransformerPPConfig,
    "gpt2": GPT2Config,
}


def head_width(model: ModelConfig) -> int:
    """Channels of one head, the zero of `d_head` resolved; ValueError where heads do not divide it."""
    if not model.d_head and model.d_model % model.n_head:
        raise ValueError(
            f"[config] model.d_model: expected a multiple of the {model.n_head} heads, got {model.d_model}; "
            "or set model.d_head"
        )
    return model.d_head or model.d_model // model.n_head


def kv_heads(model: ModelConfig) -> int:
    """Key and value heads, the zero of `n_kv_head` resolved."""
    return model.n_kv_head or model.n_head
