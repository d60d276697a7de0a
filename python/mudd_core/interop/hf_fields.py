"""Every setting of a config.json of transformers: computed, without effect on what a model computes, or refused.

transformers reads a config.json without complaint about names that no class has. Here such a name is refused with its
value, since nobody can say whether the model needs it. tests/python/interop/test_interop_hf_fields.py compares the
table with the config classes of the installed transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mudd_core.base.types import Json
from mudd_core.interop.settings import Reader, Settings


class Fields(NamedTuple):
    """Settings of one model type. fixed: those that are read with these values alone."""

    computed: frozenset[str]
    fixed: Mapping[str, tuple[Json, ...]]
    title: str  # of its class: <title>Config


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Saving, generation, heads of other tasks, memory, and arithmetic of equal value.
_WITHOUT_EFFECT = _words(
    """
    _attn_implementation _attn_implementation_autoset _name_or_path architectures attn_implementation
    bos_token_id bad_words_ids begin_suppress_tokens chunk_size_feed_forward decoder_start_token_id
    diversity_penalty do_sample dtype early_stopping encoder_no_repeat_ngram_size eos_token_id
    exponential_decay_length_penalty experts_implementation finetuning_task forced_bos_token_id
    forced_eos_token_id id2label is_decoder is_llama_config label2id length_penalty max_length min_length
    model_type no_repeat_ngram_size num_beam_groups num_beams num_labels num_return_sequences output_attentions
    output_hidden_states output_scores pad_token_id prefix pretraining_tp problem_type remove_invalid_values
    reorder_and_upcast_attn repetition_penalty return_dict return_dict_in_generate sep_token_id
    summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj
    suppress_tokens task_specific_params temperature tf_legacy_loss tie_encoder_decoder tokenizer_class top_k
    top_p torch_dtype torchscript transformers.js_config transformers_version typical_p unsloth_fixed
    unsloth_version use_bfloat16 use_cache
    """
)
# Of all types; null, which sets nothing, is always read.
_FIXED: Mapping[str, tuple[Json, ...]] = {
    "add_cross_attention": (False,),
    "auto_map": (),
    "cross_attention_hidden_size": (),
    "is_encoder_decoder": (False,),
    "per_layer_config": ({},),
    "pruned_heads": ({},),
    "quantization_config": (),
    "rope_interleaved": (False,),
    "tie_last_hidden_states": (True,),
    "use_mrope": (False,),
}
_NO_BIASES: Mapping[str, tuple[Json, ...]] = {**_FIXED, "attention_bias": (False,), "mlp_bias": (False,)}
_ROTARY = _words(
    """
    attention_dropout head_dim hidden_act hidden_size initializer_range intermediate_size
    max_position_embeddings num_attention_heads num_hidden_layers num_key_value_heads
    original_max_position_embeddings partial_rotary_factor rms_norm_eps rope_parameters rope_scaling rope_theta
    tie_word_embeddings vocab_size
    """
)
_QWEN = _ROTARY | {"layer_types", "max_window_layers", "sliding_window", "use_sliding_window"}
_MIXTURE = _words(
    """
    capacity_factor num_experts num_experts_per_tok num_local_experts output_router_logits router_aux_loss_coef
    router_jitter_noise sliding_window
    """
)
_GPT2 = _words(
    """
    activation_function attn_pdrop embd_pdrop initializer_range layer_norm_epsilon n_ctx n_embd n_head n_inner
    n_layer n_positions resid_pdrop scale_attn_by_inverse_layer_idx scale_attn_weights tie_word_embeddings
    vocab_size
    """
)
FIELDS: Mapping[str, Fields] = {
    "llama": Fields(_ROTARY | {"attention_bias", "mlp_bias"}, _FIXED, "Llama"),
    "mistral": Fields(_ROTARY | {"layer_types", "sliding_window"}, _NO_BIASES, "Mistral"),
    "qwen2": Fields(_QWEN, _FIXED, "Qwen2"),
    "qwen3": Fields(_QWEN | {"attention_bias"}, _FIXED, "Qwen3"),
    "gpt2": Fields(_GPT2, _FIXED, "GPT2"),
    "mixtral": Fields(_ROTARY | _MIXTURE, _NO_BIASES, "Mixtral"),
}


def require_known(settings: Settings, kind: str) -> None:
    """ValueError for the first setting of a model of this type that is not computed, with its value."""
    fields = FIELDS[kind]
    for name, value in settings.items():
        if value is None or name in fields.computed or name in _WITHOUT_EFFECT:
            continue
        if name in fields.fixed:
            allowed = fields.fixed[name]
            if value not in allowed:
                wanted = repr(allowed[0]) if allowed else "no value"
                raise Reader("hf", settings).refusal(name, wanted, value)
            continue
        raise Reader("hf", settings).refusal(
            name,
            f"a setting of transformers' {fields.title}Config (leave it out if the model works without it)",
            value,
        )


def refuse_others(settings: Settings, **allowed: tuple[Json, ...]) -> None:
    """ValueError unless each setting that is there has one of the allowed values."""
    for name, values in allowed.items():
        if name in settings and settings[name] not in values:
            raise ValueError(
                f"[hf] {name}: expected {' or '.join(map(repr, values))}, got {settings[name]!r}"
            )
