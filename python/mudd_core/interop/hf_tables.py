"""The settings of each type of model in transformers, as tables.

A table row reads one setting and writes it. Files of transformers 4 (rope_theta, torch_dtype) and 5 (rope_parameters,
dtype) are accepted, and absent settings have transformers' defaults.
tests/python/interop/test_interop_hf_fields.py compares the rows with the config classes of the installed transformers.
"""

from __future__ import annotations

from collections.abc import Mapping

from mudd_core.base.types import Json
from mudd_core.config.families import GPT2Config, MixtralConfig, TransformerPPConfig, head_width, kv_heads
from mudd_core.interop.hf_kind import Kind
from mudd_core.interop.hf_rope import PartialRope, Rope, RopeByType
from mudd_core.interop.hf_rows import (
    BalanceLoss,
    Fixed,
    Flag,
    HfModel,
    HiddenDropout,
    Inert,
    Multiple,
    Needed,
    Number,
    Row,
    Whole,
    Word,
)
from mudd_core.interop.hf_windows import (
    MistralWindow,
    NopeLayers,
    NopeWindows,
    NoWindow,
    OneWindow,
    PeriodicWindows,
    QwenWindows,
)

_NO_BIASES = (Fixed("attention_bias", (False,)), Fixed("mlp_bias", (False,)))
# transformers' names of GPT-2's activations -> mudd_core's names
_ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu_erf",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


_SILU = Word("hidden_act", "", "silu", {"silu": "silu", "swish": "silu"})
_ROPE = Rope(1e4, is_scaled=True)


def _rotary(
    longest: int,
    inner: int,
    *,
    groups: int | None = None,
    vocab: int = 32000,
    width: int | None = None,
    sizes: tuple[int, int, int] = (4096, 32, 32),
    eps: float = 1e-6,
    activation: Word = _SILU,
    rope: Row = _ROPE,
    inner_name: str = "intermediate_size",
) -> tuple[Row, ...]:
    """Return the rows that all kinds with RoPE have; the arguments are transformers' defaults.

    sizes: hidden_size, num_hidden_layers and num_attention_heads. inner_name: the setting of d_ff.
    """
    hidden, layers, heads = sizes
    return (
        Whole("vocab_size", "vocab_size", vocab),
        Whole("max_position_embeddings", "max_seq_len", longest),
        Whole("hidden_size", "d_model", hidden),
        Whole("num_hidden_layers", "n_layer", layers),
        Whole("num_attention_heads", "n_head", heads),
        Whole("num_key_value_heads", "n_kv_head", Multiple("n_head"), absent=groups, written=kv_heads),
        Whole("head_dim", "d_head", 0, absent=width, low=0, written=head_width),
        Whole(inner_name, "d_ff", inner),
        activation,
        Number("rms_norm_eps", "norm_eps", eps),
        rope,
        Number("initializer_range", "init_std", 0.02),
        # The mudd_core families have no attention dropout: `import` prints a note.
        Inert("attention_dropout", (0.0,)),
        Inert("bos_token_id", (None,)),
        Inert("eos_token_id", (None,)),
    )


def _score_divisor(model: HfModel) -> int:
    assert isinstance(model, TransformerPPConfig)
    return model.query_pre_attn_scalar or head_width(model)


_ATTENTION_BIAS, _MLP_BIAS = Flag("attention_bias", "attn_bias"), Flag("mlp_bias", "mlp_bias")
# Without it these classes have an id of padding, whose embedding must be in the vocabulary and has no gradient.
_NO_PADDING = Inert("pad_token_id", (None,))
_QWEN = (*_rotary(32768, 22016, groups=32, vocab=151936), QwenWindows())
_QWEN3 = (*_rotary(32768, 22016, groups=32, vocab=151936, width=128), QwenWindows(), _ATTENTION_BIAS)
_MIXTURE = (
    Whole("num_local_experts", "n_expert", 8, older="num_experts"),
    Whole("num_experts_per_tok", "top_k", 2),
    Number("capacity_factor", "capacity_factor", 0.0, is_written=False),
    BalanceLoss(),
    Number("router_jitter_noise", "jitter", 0.0),
    NoWindow(),
)
_QWEN3_MOE = (
    *_rotary(
        32768,
        768,
        groups=4,
        vocab=151936,
        sizes=(2048, 24, 32),
        rope=Rope(1e4, is_scaled=False),
        inner_name="moe_intermediate_size",
    ),
    Whole("num_experts", "n_expert", 128, older="num_local_experts"),
    Whole("num_experts_per_tok", "top_k", 8),
    Needed(
        "norm_topk_prob",
        True,
        "; transformers reads an absent value as false; if the model was trained with true, write it into config.json",
    ),
    BalanceLoss(),
    Fixed("attention_bias", (False,)),
    # Every layer has experts, so no layer has this inner width.
    Fixed("decoder_sparse_step", (1,)),
    Fixed("mlp_only_layers", ([],)),
    Inert("intermediate_size", (6144,)),
    Fixed("use_sliding_window", (False,)),
    Inert("sliding_window"),
    Inert("max_window_layers"),
)
_NO_SOFTCAPPING = "; Gemma 3 has null: if the model was trained without it, write null into config.json"
_GEMMA3 = (
    *_rotary(
        131072,
        9216,
        groups=4,
        vocab=262208,
        width=256,
        sizes=(2304, 26, 8),
        activation=Word(
            "hidden_activation",
            "activation",
            "gelu_pytorch_tanh",
            {"gelu_pytorch_tanh": "gelu_tanh", **_ACTIVATIONS},
        ),
        rope=RopeByType(1e6, 1e4, "rope_local_base_freq"),
    ),
    PeriodicWindows("sliding_window_pattern", 6),
    Whole("query_pre_attn_scalar", "query_pre_attn_scalar", 256, written=_score_divisor),
    _ATTENTION_BIAS,
    _NO_PADDING,
    Fixed("attn_logit_softcapping", remedy=_NO_SOFTCAPPING),
    Fixed("final_logit_softcapping", remedy=_NO_SOFTCAPPING),
    Fixed("use_bidirectional_attention", (False,)),
    Inert("_sliding_window_pattern"),
)
_SMOLLM3 = (
    *_rotary(32768, 11008, groups=4, vocab=128256, sizes=(2048, 36, 16), rope=Rope(2e6, is_scaled=True)),
    NopeLayers(),
    NopeWindows(),
    _NO_PADDING,
    _ATTENTION_BIAS,
    _MLP_BIAS,
)
_OLMO: Mapping[str, Json] = {"qk_norm": True, "qk_norm_whole": True, "norm_place": "after"}
_OLMO2 = (*_rotary(2048, 11008, vocab=50304, eps=1e-5), _NO_PADDING, _ATTENTION_BIAS)
_OLMO3 = (
    *_rotary(2048, 11008, vocab=50304, eps=1e-5, rope=RopeByType(5e5, 5e5)),
    PeriodicWindows("", 4),
    _NO_PADDING,
    _ATTENTION_BIAS,
)
_PHI3 = (
    *_NO_BIASES,
    *_rotary(
        4096,
        8192,
        vocab=32064,
        sizes=(3072, 32, 32),
        eps=1e-5,
        rope=PartialRope("rope_theta", "partial_rotary_factor", 1.0),
    ),
    OneWindow(),
    _NO_PADDING,
    # `import` prints a note about dropout.
    Inert("embd_pdrop", (0.0,)),
    Inert("resid_pdrop", (0.0,)),
    Inert("original_max_position_embeddings"),  # only longrope reads it
)
_GPT2 = (
    Whole("vocab_size", "vocab_size", 50257),
    Whole("n_positions", "max_seq_len", 1024),
    Inert("n_ctx"),  # an older name of n_positions
    Whole("n_embd", "d_model", 768),
    Whole("n_layer", "n_layer", 12),
    Whole("n_head", "n_head", 12),
    Whole("n_inner", "d_ff", Multiple("d_model", 4)),
    Word("activation_function", "activation", "gelu_new", _ACTIVATIONS),
    Flag("scale_attn_weights", "scale_scores", True, is_strict=True),
    Flag("scale_attn_by_inverse_layer_idx", "scale_by_layer", is_strict=True),
    Number("layer_norm_epsilon", "norm_eps", 1e-5),
    Number("initializer_range", "init_std", 0.02),
    Number("resid_pdrop", "resid_dropout", 0.1),
    Number("embd_pdrop", "embd_dropout", 0.1),
    Number("attn_pdrop", "attn_dropout", 0.1),
    Inert("bos_token_id", (None,)),
    Inert("eos_token_id", (None,)),
)

_NEOX = (
    Whole("vocab_size", "vocab_size", 50432),
    Whole("max_position_embeddings", "max_seq_len", 2048),
    Whole("hidden_size", "d_model", 6144),
    Whole("num_hidden_layers", "n_layer", 44),
    Whole("num_attention_heads", "n_head", 64),
    Whole("intermediate_size", "d_ff", 24576),
    Word("hidden_act", "activation", "gelu", {"gelu": "gelu_erf", **_ACTIVATIONS}),
    Number("layer_norm_eps", "norm_eps", 1e-5),
    PartialRope("rotary_emb_base", "rotary_pct", 0.25, ("rope_theta", "partial_rotary_factor")),
    Flag("use_parallel_residual", "parallel", True, is_strict=True),
    Flag("attention_bias", "attn_bias", True, is_strict=True),
    Number("initializer_range", "init_std", 0.02),
    HiddenDropout(),
    Number("attention_dropout", "attn_dropout", 0.0),
    Inert("classifier_dropout"),
    Inert("bos_token_id", (None,)),
    Inert("eos_token_id", (None,)),
)

KINDS: Mapping[str, Kind] = {
    kind.model_type: kind
    for kind in (
        Kind("llama", "Llama", TransformerPPConfig, (*_rotary(2048, 11008), _ATTENTION_BIAS, _MLP_BIAS)),
        Kind(
            "mistral",
            "Mistral",
            TransformerPPConfig,
            (*_NO_BIASES, *_rotary(131072, 14336, groups=8), MistralWindow()),
        ),
        Kind("qwen2", "Qwen2", TransformerPPConfig, _QWEN, {"qkv_bias": True}),
        Kind("qwen3", "Qwen3", TransformerPPConfig, _QWEN3, {"qk_norm": True}),
        Kind(
            "gemma3_text",
            "Gemma3",
            TransformerPPConfig,
            _GEMMA3,
            {"qk_norm": True, "norm_place": "both", "gain_offset": 1.0, "scale_embeddings": True},
            is_tied=True,
            config="Gemma3Text",
        ),
        Kind("smollm3", "SmolLM3", TransformerPPConfig, _SMOLLM3, is_tied=True),
        Kind("olmo2", "Olmo2", TransformerPPConfig, _OLMO2, _OLMO),
        Kind("olmo3", "Olmo3", TransformerPPConfig, _OLMO3, _OLMO),
        Kind("phi3", "Phi3", TransformerPPConfig, _PHI3, {"joined_projections": True}),
        Kind("gpt2", "GPT2", GPT2Config, _GPT2, is_tied=True),
        Kind("gpt_neox", "GPTNeoX", GPT2Config, _NEOX, {"positions": "rotary"}),
        Kind(
            "mixtral",
            "Mixtral",
            MixtralConfig,
            (
                *_NO_BIASES,
                *_rotary(131072, 14336, groups=8, eps=1e-5, rope=Rope(1e6, is_scaled=False)),
                *_MIXTURE,
            ),
            {"aux_scope": "batch"},
        ),
        Kind("qwen3_moe", "Qwen3Moe", MixtralConfig, _QWEN3_MOE, {"aux_scope": "batch", "qk_norm": True}),
    )
}
