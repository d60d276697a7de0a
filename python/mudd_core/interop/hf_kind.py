"""A type of model in transformers: its config class, its settings, and the settings that all types have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mudd_core.base.types import Json, JsonObject
from mudd_core.config.fields import with_fields
from mudd_core.interop.hf_rows import Fixed, Flag, HfModel, Inert, Row, Whole
from mudd_core.interop.settings import Reader, Settings


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
        head = "LMHeadModel" if self.model_type == "gpt2" else "ForCausalLM"
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
