"""Settings in the config.json of transformers' types of models, as tables.

A table row reads one setting and writes it. Files of transformers 4 (rope_theta, torch_dtype) and 5 (rope_parameters,
dtype) are accepted, and absent settings have transformers' defaults. transformers ignores names in a config.json that
no class has. Such a name is rejected here with its value, because the model may need it.
tests/python/interop/test_interop_hf_fields.py compares the rows with the config classes of the installed transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mudd_core.base.types import Json, JsonObject
from mudd_core.config.families import (
    GPT2Config,
    MixtralConfig,
    ModelConfig,
    TransformerPPConfig,
    head_width,
    kv_heads,
)
from mudd_core.config.fields import with_fields
from mudd_core.interop.hf_images import text_settings
from mudd_core.interop.hf_rope import PartialRope, Rope, RopeByType
from mudd_core.interop.hf_rows import (
    BalanceLoss,
    Fixed,
    Flag,
    HfModel,
    Inert,
    Multiple,
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
from mudd_core.interop.settings import Reader, Settings

FAMILIES = ("transformer_pp", "gpt2", "mixtral")


@dataclass(frozen=True)
class Kind:
    """A model type of transformers.

    title: prefix of its class names, as in <title>Config. config: the prefix of its config class, if it is another.
    always: fields that are the same in all its models. is_tied: the head is tied if the setting is absent.
    """

    model_type: str
    title: str
    family: type[HfModel]
    own: tuple[Row, ...]
    always: Mapping[str, Json] = field(default_factory=dict)
    is_tied: bool = False
    config: str = ""

    @property
    def config_class(self) -> str:
        """Return the name of its config class in transformers."""
        return f"{self.config or self.title}Config"

    @property
    def rows(self) -> tuple[Row, ...]:
        """Return all rows, in the order in which they are written."""
        head = "LMHeadModel" if self.family is GPT2Config else "ForCausalLM"
        return (
            *_EVERYWHERE,
            Inert("architectures", ([self.title + head],)),
            Inert("model_type", (self.model_type,)),
            *self.own,
            Inert("dtype", ("float32",)),
            Inert("use_cache", (True,)),
            Flag("tie_word_embeddings", "tie_embeddings", self.is_tied),
        )

    def read(self, settings: Settings) -> HfModel:
        """Return the mudd_core config. Raise ValueError for a setting that no row knows or that its row rejects."""
        known = {name for row in self.rows for name in row.names}
        read = Reader("hf", settings)
        for name, value in settings.items():
            if value is not None and name not in known:
                wanted = f"a setting of transformers' {self.config_class} (leave it out if the model works without it)"
                raise read.refusal(name, wanted, value)
        found: JsonObject = {}
        for row in self.rows:
            found |= row.read(read, found)
        return with_fields(self.family(), {**found, **self.always})

    def write(self, model: HfModel) -> JsonObject:
        """Return the settings for a model of this type."""
        return {name: value for row in self.rows for name, value in row.write(model).items()}

    def name_of(self, ours: str) -> str:
        """Return transformers' name of a size field of the model config."""
        return next(row.theirs for row in self.rows if isinstance(row, Whole) and row.ours == ours)


# Settings for saving, generation, other tasks' heads and memory, and for implementations with equal results.
_WITHOUT_EFFECT = """
    _attn_implementation _attn_implementation_autoset _name_or_path attn_implementation bad_words_ids
    begin_suppress_tokens cache_implementation chunk_size_feed_forward decoder_start_token_id diversity_penalty
    do_sample early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty experts_implementation
    finetuning_task forced_bos_token_id forced_eos_token_id id2label is_decoder is_llama_config label2id
    length_penalty max_length min_length no_repeat_ngram_size num_beam_groups num_beams num_labels
    num_return_sequences output_attentions output_hidden_states output_scores pad_token_id prefix pretraining_tp
    problem_type remove_invalid_values reorder_and_upcast_attn repetition_penalty return_dict
    return_dict_in_generate sep_token_id summary_activation summary_first_dropout summary_proj_to_labels
    summary_type summary_use_proj suppress_tokens task_specific_params temperature tf_legacy_loss
    tie_encoder_decoder tokenizer_class top_k top_p torch_dtype torchscript transformers.js_config
    transformers_version typical_p unsloth_fixed unsloth_version use_bfloat16
"""
# for all kinds
_EVERYWHERE: tuple[Row, ...] = (
    Fixed("add_cross_attention", (False,)),
    Fixed("auto_map"),
    Fixed("cross_attention_hidden_size"),
    Fixed("is_encoder_decoder", (False,)),
    Fixed("per_layer_config", ({},)),
    Fixed("pruned_heads", ({},)),
    Fixed("quantization_config"),
    Fixed("rope_interleaved", (False,)),
    Fixed("tie_last_hidden_states", (True,)),
    Fixed("use_mrope", (False,)),
    *map(Inert, _WITHOUT_EFFECT.split()),
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
) -> tuple[Row, ...]:
    """Return the rows that all kinds with RoPE have; the arguments are transformers' defaults.

    sizes: hidden_size, num_hidden_layers and num_attention_heads.
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
        Whole("intermediate_size", "d_ff", inner),
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
    Fixed("attn_logit_softcapping"),
    Fixed("final_logit_softcapping"),
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
    )
}


def kind_of(settings: Settings) -> Kind:
    """Return the kind of a config.json. Raise ValueError for an unsupported one."""
    name = settings.get("model_type")
    if not isinstance(name, str) or name not in KINDS:
        raise Reader("hf", settings).refusal("model_type", f"one of {', '.join(KINDS)}", name)
    return KINDS[name]


def model_config(settings: Settings) -> HfModel:
    """Return the mudd_core model config. Raise ValueError, with the setting's name, if there is no equivalent."""
    settings = text_settings(settings)
    return kind_of(settings).read(settings)


def original_config(model: ModelConfig) -> JsonObject:
    """Return the config.json for a model config. Raise ValueError for a family or feature that transformers lacks."""
    if isinstance(model, TransformerPPConfig):
        return _rotary_kind(model).write(model)
    if isinstance(model, MixtralConfig):
        return KINDS["mixtral"].write(model)
    if isinstance(model, GPT2Config):
        return KINDS["gpt2"].write(model)
    raise ValueError(f"[hf] family: expected one of {', '.join(FAMILIES)}, got '{model.family}'")


def _rotary_kind(model: TransformerPPConfig) -> Kind:
    """Return the first kind that has all features of the model, or the one that lacks the fewest of them.

    lost_fields then rejects the features that it lacks.
    """
    ours = model.settled()

    def lost(kind: Kind) -> int:
        try:
            theirs = kind.read(kind.write(model)).settled()
        except ValueError:
            return len(ours.__dataclass_fields__)
        return sum(getattr(ours, name) != getattr(theirs, name) for name in ours.__dataclass_fields__)

    return min((kind for kind in KINDS.values() if kind.family is TransformerPPConfig), key=lost)
