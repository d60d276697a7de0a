"""Hugging Face transformers: weights, batches and losses. hf_names.py has the names, hf_tables.py the settings.

Gradients and exports use the spelling of the weights that were read.

GPT-2's resid_pdrop, embd_pdrop and attn_pdrop are converted both ways. The mudd_core Llama and Mixtral have no dropout,
so `launch.py import` prints a note about their attention_dropout and ignores it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from mudd_core.base.types import Array, JsonObject
from mudd_core.checkpoint.stored import AnyTensor
from mudd_core.config.families import MixtralConfig
from mudd_core.interop import hf_settings
from mudd_core.interop.hf_images import text_settings, text_weights
from mudd_core.interop.hf_names import HEAD, NEOX_HEAD, Spelling, components, usual_spelling
from mudd_core.interop.hf_rows import HfModel
from mudd_core.interop.hf_settings import kind_of
from mudd_core.interop.layout import Entry
from mudd_core.interop.settings import Settings
from mudd_core.interop.system import Shapes, System, as_ids

_BUFFERS = re.compile(r"(rotary_emb\.\w+|\.(attn|attention)\.(masked_)?bias)$")  # computed, not learned
# Every other tensor, such as a value head or a classifier, belongs to another task; transformers ignores it.
_OF_MODEL = re.compile(
    r"(transformer\.|gpt_neox\.|model\.)?"
    r"((layers|h)\.|embed_tokens|embed_in|wte|wpe|norm|ln_f|final_layer_norm|lm_head|embed_out)"
)
_CONSOLIDATED = "layers.0.attention.wq.weight"
_PREFIXES = ("transformer.", "gpt_neox.", "model.", "")
_KNOWN = ("tokens", "input_ids", "labels", "attention_mask", "position_ids")
_LAYER = re.compile(r"(?:(?:model\.|gpt_neox\.)?layers|(?:transformer\.)?h)\.(\d{1,9})\.")
_EMBEDDINGS = tuple(
    f"{prefix}{name}.weight" for name in ("embed_tokens", "embed_in", "wte") for prefix in _PREFIXES
)
_ROUTERS = ("layers.0.block_sparse_moe.gate.weight", "layers.0.mlp.gate.weight")


class HuggingFace(System[HfModel]):
    """The models of transformers, with one spelling of the names."""

    normalize = "valid"
    families = hf_settings.FAMILIES
    advice: ClassVar[Mapping[str, str]] = {
        "capacity_factor": "transformers drops no tokens; launch.py export with model.capacity_factor=0 writes the "
        "weights for that"
    }

    def __init__(self, spelling: Spelling | None = None) -> None:
        self._spelling = spelling

    def reading(
        self, config: Settings, weights: Mapping[str, AnyTensor]
    ) -> tuple[HuggingFace, dict[str, AnyTensor]]:
        """Return this system with the spelling of the weights, and the weights that belong to the model.

        Raise ValueError for the names of Mistral's own program.
        """
        if _CONSOLIDATED in weights:
            raise ValueError(
                "[hf] weights: expected the names of transformers, got the names of Mistral's own "
                f"program ({_CONSOLIDATED}, as in consolidated.safetensors); fetch the folder with "
                "its model*.safetensors files, `hf download OWNER/NAME --local-dir FOLDER`, and pass "
                "that FOLDER"
            )
        weights = text_weights(weights)
        of_model = {name for name in weights if _OF_MODEL.match(name) and not _BUFFERS.search(name)}
        learned = {name: array for name, array in weights.items() if name in of_model or not of_model}
        spelling = Spelling(
            prefix=next(one for one in _PREFIXES if any(name.startswith(one) for name in learned) or not one),
            fused=any(name.endswith("experts.gate_up_proj") for name in learned),
            head=HEAD in learned or NEOX_HEAD in learned,
            head_name=NEOX_HEAD if NEOX_HEAD in learned else HEAD,
        )
        return HuggingFace(spelling), learned

    def _spelled(self, model: HfModel) -> Spelling:
        return self._spelling or usual_spelling(model)

    def of_text(self, config: Settings) -> JsonObject:
        """Return the settings of the language model in a model for text and images."""
        return text_settings(config)

    def require(self, config: Settings) -> None:
        """Raise ValueError for settings that mudd_core does not support."""
        hf_settings.model_config(config)

    def model_config(self, config: Settings, shapes: Shapes) -> HfModel:
        """Return the mudd_core config for a config.json. Raise ValueError if the tensors have other sizes."""
        model = hf_settings.model_config(config)
        require_sizes(config, model, shapes)
        return model

    def original_config(self, model: HfModel) -> JsonObject:
        """Return the config.json for a mudd_core config."""
        return hf_settings.original_config(model)

    def entries(self, model: HfModel, config: Settings) -> Sequence[Entry]:
        """Return where each mudd_core parameter is stored in the tensors of transformers."""
        return [entry for entry, _ in components(model, self._spelled(model))]

    def shapes(self, model: HfModel, config: Settings) -> Shapes:
        """Return the shape of every tensor in transformers, by name."""
        return {entry.theirs: shape for entry, shape in components(model, self._spelled(model))}

    def batch(self, config: Settings, batch: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
        """Return the mudd_core batch for tokens (or input_ids), labels, attention_mask and position_ids, all [B, T].

        Labels are shifted by one position here, and -100 is ignored; without labels all targets are ignored. A
        mudd_core batch is returned as it is.
        """
        if "inputs" in batch and "targets" in batch:
            return {name: as_ids(value, name) for name, value in batch.items()}
        unknown = sorted(set(batch) - set(_KNOWN))
        ids = batch.get("tokens", batch.get("input_ids"))
        if unknown or ids is None:
            raise ValueError(
                f"[hf] batch: expected tokens and optionally {', '.join(_KNOWN[2:])}; got {sorted(batch)}"
            )
        inputs = as_ids(ids, "tokens")
        targets = np.full_like(inputs, -100)
        if batch.get("labels") is not None:
            labels = as_ids(batch["labels"], "labels")
            if labels.shape != inputs.shape:
                raise ValueError(f"[hf] labels: expected shape {inputs.shape}, got {labels.shape}")
            targets[:, :-1] = labels[:, 1:]
        ours = {"inputs": inputs, "targets": targets}
        if batch.get("attention_mask") is not None:
            mask = as_ids(batch["attention_mask"], "attention_mask")
            if not mask.all():  # a mask of ones has no effect
                ours["key_mask"] = mask
        if batch.get("position_ids") is not None:
            positions = as_ids(batch["position_ids"], "position_ids")
            ours["positions"] = np.ascontiguousarray(np.broadcast_to(positions, inputs.shape))
        return ours


SYSTEM = HuggingFace()


def require_sizes(config: Settings, model: HfModel, shapes: Shapes) -> None:
    """Raise ValueError if a size in config.json disagrees with the tensors.

    Only the sizes are checked that determine the number of tensors and their widths.
    """
    kind = kind_of(config)
    numbers = [int(match[1]) for match in map(_LAYER.match, shapes) if match]
    if not numbers:
        raise ValueError(
            f"[hf] weights: expected names that start like 'model.layers.0.', got '{next(iter(shapes), 'none')}'; "
            "the files are of another kind of model than config.json"
        )
    sizes = [(kind.name_of("n_layer"), model.n_layer, 1 + max(numbers))]
    for name in _EMBEDDINGS:
        if len(shapes.get(name, ())) == 2:
            sizes.append(("vocab_size", model.vocab_size, shapes[name][0]))
            sizes.append((kind.name_of("d_model"), model.d_model, shapes[name][1]))
    if isinstance(model, MixtralConfig):
        names = [f"{prefix}{name}" for prefix in ("model.", "") for name in _ROUTERS]
        router = next((shapes[name] for name in names if name in shapes), None)
        if not router:
            raise ValueError(f"[hf] weights: '{names[0]}' is missing")
        sizes.append(("num_local_experts", model.n_expert, router[0]))
    for name, given, have in sizes:
        if given != have:
            raise ValueError(
                f"[hf] {name}: the weights have {have}, the settings say {given}; copy the folder again"
            )
