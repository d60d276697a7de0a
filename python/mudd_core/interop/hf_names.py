"""The names of tensors in transformers, and their places in mudd_core's parameters.

All common spellings of the names are accepted: with or without the prefix "transformer." (GPT-2) or "model." (the
others), Mixtral's experts one by one or fused over experts (transformers 5 in memory), and a tied head that is stored
or omitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mudd_core.config.families import GPT2Config, MixtralConfig, TransformerPPConfig, head_width, kv_heads
from mudd_core.interop.hf_rows import HfModel
from mudd_core.interop.layout import Entry

Shape = tuple[int, ...]

HEAD, NEOX_HEAD = "lm_head.weight", "embed_out.weight"

# The matrices of an expert in transformers' files.
_MIXTRAL_EXPERT = {"gate": "w1", "up": "w3", "down": "w2"}
_QWEN_EXPERT = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
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

    prefix: str = ""  # "transformer.", "gpt_neox.", "model." or ""
    fused: bool = False  # Mixtral: all experts of a layer in two tensors
    head: bool = False  # a tied head is stored too
    head_name: str = HEAD


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
    if model.qk_norm:
        for name, whole in (("q_norm", q), ("k_norm", kv)):
            size = whole if options is not None and options.qk_norm_whole else width
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
    moe, names = (
        (f"{layer}.mlp", _QWEN_EXPERT) if model.qk_norm else (f"{layer}.block_sparse_moe", _MIXTRAL_EXPERT)
    )
    yield _turned(f"{block}.ffn.router.w", f"{moe}.gate.weight", D, E)
    for e in range(E):
        for ours, theirs in names.items():
            shape = (D, F) if ours == "down" else (F, D)
            entry = Entry(f"{block}.ffn.{ours}.w", f"{moe}.experts.{e}.{theirs}.weight", axes=(1, 0), part=e)
            yield entry, shape


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


def _neox(model: GPT2Config, spelling: Spelling) -> Iterator[Part]:
    D, F, H, p = model.d_model, model.d_ff, model.n_head, spelling.prefix
    width = head_width(model)
    yield Entry("embed", f"{p}embed_in.weight"), (model.vocab_size, D)
    for n in range(model.n_layer):
        block, layer = f"blocks.{n}", f"{p}layers.{n}"
        both = f"{layer}.attention.query_key_value"
        for i, name in enumerate("qkv"):  # q, k and v of a head are neighbours
            view, index = (H, 3, width), (slice(None), i)
            ours = f"{block}.attn.{name}"
            yield Entry(f"{ours}.w", f"{both}.weight", (*view, D), index, (2, 0, 1)), (3 * D, D)
            if model.attn_bias:
                yield Entry(f"{ours}.b", f"{both}.bias", view, index), (3 * D,)
        yield from _product(f"{block}.attn.o", f"{layer}.attention.dense", D, D, model.attn_bias)
        yield from _product(f"{block}.ffn.up", f"{layer}.mlp.dense_h_to_4h", D, F, True)
        yield from _product(f"{block}.ffn.down", f"{layer}.mlp.dense_4h_to_h", F, D, True)
        for ours, theirs in (("attn.norm", "input_layernorm"), ("ffn.norm", "post_attention_layernorm")):
            yield Entry(f"{block}.{ours}.gain", f"{layer}.{theirs}.weight"), (D,)
            yield Entry(f"{block}.{ours}.bias", f"{layer}.{theirs}.bias"), (D,)
    yield Entry("final_norm.gain", f"{p}final_layer_norm.weight"), (D,)
    yield Entry("final_norm.bias", f"{p}final_layer_norm.bias"), (D,)


def usual_spelling(model: HfModel) -> Spelling:
    """Return the spelling that transformers writes."""
    if not isinstance(model, GPT2Config):
        return Spelling("model.")
    return (
        Spelling("transformer.")
        if model.positions == "learned"
        else Spelling("gpt_neox.", head_name=NEOX_HEAD)
    )


def components(model: HfModel, spelling: Spelling) -> Iterator[Part]:
    """Yield where each parameter of a model is stored, with the shape of the tensor there."""
    if not isinstance(model, GPT2Config):
        yield from _rotary(model, spelling)
    else:
        yield from _gpt2(model, spelling) if model.positions == "learned" else _neox(model, spelling)
    shape = (model.vocab_size, model.d_model)
    if not model.tie_embeddings:
        yield Entry("head", spelling.head_name), shape
    elif spelling.head:
        yield Entry("embed", spelling.head_name), shape
