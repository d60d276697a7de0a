"""Hugging Face transformers: tensor names, batches and losses.

All common spellings of the names are accepted: with or without the prefix "transformer." (GPT-2) or "model." (the
others), Mixtral's experts one by one or fused over experts (transformers 5 in memory), and a tied head that is stored
or omitted. Gradients and exports use the spelling of the weights that were read.

GPT-2's resid_pdrop, embd_pdrop and attn_pdrop are converted both ways. The mudd_core Llama and Mixtral have no dropout,
so `launch.py import` prints a note about their attention_dropout and ignores it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from mudd_core.base.types import Array, JsonObject
from mudd_core.checkpoint.stored import AnyTensor
from mudd_core.config.families import GPT2Config, MixtralConfig, TransformerPPConfig, head_width, kv_heads
from mudd_core.interop import hf_settings
from mudd_core.interop.hf_images import text_settings, text_weights
from mudd_core.interop.hf_rows import HfModel
from mudd_core.interop.hf_settings import kind_of
from mudd_core.interop.layout import Entry
from mudd_core.interop.settings import Settings
from mudd_core.interop.system import Shapes, System, as_ids

Shape = tuple[int, ...]

_BUFFERS = re.compile(r"(rotary_emb\.\w+|\.attn\.(masked_)?bias)$")  # computed, not learned
# Every other tensor, such as a value head or a classifier, belongs to another task; transformers ignores it.
_OF_MODEL = re.compile(r"(transformer\.|model\.)?((layers|h)\.|embed_tokens|wte|wpe|norm|ln_f|lm_head)")
_CONSOLIDATED = "layers.0.attention.wq.weight"
_PREFIXES = ("transformer.", "model.", "")
_KNOWN = ("tokens", "input_ids", "labels", "attention_mask", "position_ids")
_LAYER = re.compile(r"(?:(?:model\.)?layers|(?:transformer\.)?h)\.(\d{1,9})\.")
_EMBEDDINGS = ("model.embed_tokens.weight", "embed_tokens.weight", "transformer.wte.weight", "wte.weight")
_ROUTERS = ("layers.0.block_sparse_moe.gate.weight", "layers.0.mlp.gate.weight")


# By model.norm_place: the norms of a block, and their names in transformers.
_NORMS = {
    "before": {"attn.norm": "input_layernorm", "ffn.norm": "post_attention_layernorm"},
    "after": {
        "attn.post_norm": "post_attention_layernorm",
        "ffn.post_norm": "post_feedforward_layernorm",
    },
    "both": {
        "attn.norm": "input_layernorm",
        "attn.post_norm": "post_attention_layernorm",
        "ffn.norm": "pre_feedforward_layernorm",
        "ffn.post_norm": "post_feedforward_layernorm",
    },
}


@dataclass(frozen=True)
class Spelling:
    """The spelling that a set of weights uses."""

    prefix: str = ""  # "transformer." or "" for GPT-2, "model." or "" for the others
    fused: bool = False  # Mixtral: all experts of a layer in two tensors
    head: bool = False  # a tied head is stored too


Part = tuple[Entry, Shape]  # the entry with the shape of its tensor in transformers


def _turned(ours: str, theirs: str, fan_in: int, fan_out: int) -> Part:
    """Return the entry of a matrix that is [in, out] in mudd_core and transposed, [out, in], in transformers."""
    return Entry(ours, theirs, axes=(1, 0)), (fan_out, fan_in)


def _product(ours: str, theirs: str, fan_in: int, fan_out: int, biased: bool) -> Iterator[Part]:
    yield _turned(f"{ours}.w", f"{theirs}.weight", fan_in, fan_out)
    if biased:
        yield Entry(f"{ours}.b", f"{theirs}.bias"), (fan_out,)


def _joined(block: str, widths: Mapping[str, int], theirs: str, fan_in: int) -> Iterator[Part]:
    """Yield the entries of several matrices of a block in one of transformers. widths: the outputs of each."""
    start, total = 0, sum(widths.values())
    for name, width in widths.items():
        rows = slice(start, start + width)
        yield Entry(f"{block}.{name}.w", f"{theirs}.weight", index=(rows,), axes=(1, 0)), (total, fan_in)
        start += width


def _rotary_block(model: TransformerPPConfig | MixtralConfig, block: str, layer: str) -> Iterator[Part]:
    """Yield the entries of a block's norms and attention, for the models with RoPE."""
    D, width = model.d_model, head_width(model)
    q, kv = model.n_head * width, kv_heads(model) * width
    options = None if isinstance(model, MixtralConfig) else model
    for ours, theirs in _NORMS["before" if options is None else options.norm_place].items():
        yield Entry(f"{block}.{ours}.gain", f"{layer}.{theirs}.weight"), (D,)
    o_bias = options is not None and options.attn_bias
    qkv_bias = o_bias or (options is not None and options.qkv_bias)
    if options is not None and options.joined_projections:
        yield from _joined(block, {"attn.q": q, "attn.k": kv, "attn.v": kv}, f"{layer}.self_attn.qkv_proj", D)
        yield from _product(f"{block}.attn.o", f"{layer}.self_attn.o_proj", q, D, o_bias)
        return
    for name, fan_in, fan_out in (("q", D, q), ("k", D, kv), ("v", D, kv), ("o", q, D)):
        theirs, biased = f"{layer}.self_attn.{name}_proj", o_bias if name == "o" else qkv_bias
        yield from _product(f"{block}.attn.{name}", theirs, fan_in, fan_out, biased)
    if options is not None and options.qk_norm:
        for name, whole in (("q_norm", q), ("k_norm", kv)):
            size = whole if options.qk_norm_whole else width
            yield Entry(f"{block}.attn.{name}.gain", f"{layer}.self_attn.{name}.weight"), (size,)


def _experts(model: MixtralConfig, block: str, layer: str, fused: bool) -> Iterator[Part]:
    D, F, E = model.d_model, model.d_ff, model.n_expert
    if fused:
        yield _turned(f"{block}.ffn.router.w", f"{layer}.mlp.gate.weight", D, E)
        both, turn = f"{layer}.mlp.experts.gate_up_proj", (0, 2, 1)
        yield Entry(f"{block}.ffn.gate.w", both, index=(slice(None), slice(0, F)), axes=turn), (E, 2 * F, D)
        yield Entry(f"{block}.ffn.up.w", both, index=(slice(None), slice(F, None)), axes=turn), (E, 2 * F, D)
        yield Entry(f"{block}.ffn.down.w", f"{layer}.mlp.experts.down_proj", axes=turn), (E, D, F)
        return
    moe = f"{layer}.block_sparse_moe"
    yield _turned(f"{block}.ffn.router.w", f"{moe}.gate.weight", D, E)
    for e in range(E):
        for ours, theirs, shape in (("gate", "w1", (F, D)), ("up", "w3", (F, D)), ("down", "w2", (D, F))):
            yield (
                Entry(f"{block}.ffn.{ours}.w", f"{moe}.experts.{e}.{theirs}.weight", axes=(1, 0), part=e),
                shape,
            )


def _rotary(model: TransformerPPConfig | MixtralConfig, spelling: Spelling) -> Iterator[Part]:
    D, F, p = model.d_model, model.d_ff, spelling.prefix
    yield Entry("embed", f"{p}embed_tokens.weight"), (model.vocab_size, D)
    for n in range(model.n_layer):
        block, layer = f"blocks.{n}", f"{p}layers.{n}"
        yield from _rotary_block(model, block, layer)
        if isinstance(model, MixtralConfig):
            yield from _experts(model, block, layer, spelling.fused)
            continue
        if model.joined_projections:
            yield from _joined(block, {"ffn.gate": F, "ffn.up": F}, f"{layer}.mlp.gate_up_proj", D)
            yield from _product(f"{block}.ffn.down", f"{layer}.mlp.down_proj", F, D, model.mlp_bias)
            continue
        for name, fan_in, fan_out in (("gate", D, F), ("up", D, F), ("down", F, D)):
            theirs = f"{layer}.mlp.{name}_proj"
            yield from _product(f"{block}.ffn.{name}", theirs, fan_in, fan_out, model.mlp_bias)
    yield Entry("final_norm.gain", f"{p}norm.weight"), (D,)


def _gpt2(model: GPT2Config, spelling: Spelling) -> Iterator[Part]:
    D, F, p = model.d_model, model.d_ff, spelling.prefix
    yield Entry("embed", f"{p}wte.weight"), (model.vocab_size, D)
    yield Entry("pos_embed", f"{p}wpe.weight"), (model.max_seq_len, D)
    for n in range(model.n_layer):
        block, layer = f"blocks.{n}", f"{p}h.{n}"
        for i, name in enumerate("qkv"):  # one matrix for q, k and v, [in, out] as in mudd_core
            third = slice(i * D, (i + 1) * D)
            yield (
                Entry(f"{block}.attn.{name}.w", f"{layer}.attn.c_attn.weight", index=(slice(None), third)),
                (D, 3 * D),
            )
            yield Entry(f"{block}.attn.{name}.b", f"{layer}.attn.c_attn.bias", index=(third,)), (3 * D,)
        for ours, theirs, fan_in, fan_out in (
            ("attn.o", "attn.c_proj", D, D),
            ("ffn.up", "mlp.c_fc", D, F),
            ("ffn.down", "mlp.c_proj", F, D),
        ):
            yield Entry(f"{block}.{ours}.w", f"{layer}.{theirs}.weight"), (fan_in, fan_out)
            yield Entry(f"{block}.{ours}.b", f"{layer}.{theirs}.bias"), (fan_out,)
        for ours, theirs in (("attn.norm", "ln_1"), ("ffn.norm", "ln_2")):
            yield Entry(f"{block}.{ours}.gain", f"{layer}.{theirs}.weight"), (D,)
            yield Entry(f"{block}.{ours}.bias", f"{layer}.{theirs}.bias"), (D,)
    yield Entry("final_norm.gain", f"{p}ln_f.weight"), (D,)
    yield Entry("final_norm.bias", f"{p}ln_f.bias"), (D,)


def _components(model: HfModel, spelling: Spelling) -> Iterator[Part]:
    yield from _gpt2(model, spelling) if isinstance(model, GPT2Config) else _rotary(model, spelling)
    shape = (model.vocab_size, model.d_model)
    if not model.tie_embeddings:
        yield Entry("head", "lm_head.weight"), shape
    elif spelling.head:
        yield Entry("embed", "lm_head.weight"), shape


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
            head="lm_head.weight" in learned,
        )
        return HuggingFace(spelling), learned

    def _spelled(self, model: HfModel) -> Spelling:
        return self._spelling or Spelling(prefix=_PREFIXES[0 if isinstance(model, GPT2Config) else 1])

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
        return [entry for entry, _ in _components(model, self._spelled(model))]

    def shapes(self, model: HfModel, config: Settings) -> Shapes:
        """Return the shape of every tensor in transformers, by name."""
        return {entry.theirs: shape for entry, shape in _components(model, self._spelled(model))}

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
