"""The names of transformers' tensors in GGUF, as tables: a block's and those outside of the blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """The tensor of GGUF for a tensor of transformers. name: without blk.N. and without .weight or .bias.

    heads: the setting with the number of heads, if llama.cpp rotates pairs (2i, 2i + 1) of a head's rows. transformers
    rotates (i, i + width / 2), so the rows are reordered. joined: the setting with the number of heads, if q, k and v
    of a head are neighbours; llama.cpp has all of q, then k, then v. is_transposed: transformers stores [in, out].
    offset: a number that llama.cpp has in the weight, and transformers adds to it.
    """

    name: str
    heads: str = ""
    joined: str = ""
    is_transposed: bool = False
    offset: float = 0.0


Places = Mapping[str, Place]

_OUTSIDE = {
    "embed_tokens": Place("token_embd"),
    "norm": Place("output_norm"),
    "lm_head": Place("output"),
}
_NORMS = {
    "input_layernorm": Place("attn_norm"),
    "post_attention_layernorm": Place("ffn_norm"),
}
_ATTENTION = {
    "self_attn.q_proj": Place("attn_q"),
    "self_attn.k_proj": Place("attn_k"),
    "self_attn.v_proj": Place("attn_v"),
    "self_attn.o_proj": Place("attn_output"),
    "self_attn.q_norm": Place("attn_q_norm"),
    "self_attn.k_norm": Place("attn_k_norm"),
}
_PAIRS = {
    "self_attn.q_proj": Place("attn_q", heads="num_attention_heads"),
    "self_attn.k_proj": Place("attn_k", heads="num_key_value_heads"),
}
_GATED = {
    "mlp.gate_proj": Place("ffn_gate"),
    "mlp.up_proj": Place("ffn_up"),
    "mlp.down_proj": Place("ffn_down"),
}
_ROTARY = {**_OUTSIDE, **_NORMS, **_ATTENTION}

QWEN: Places = {**_ROTARY, **_GATED}
LLAMA: Places = {**QWEN, **_PAIRS}
MIXTRAL: Places = {
    **_ROTARY,
    **_PAIRS,
    "block_sparse_moe.gate": Place("ffn_gate_inp"),
    "block_sparse_moe.experts.*.w1": Place("ffn_gate_exps"),
    "block_sparse_moe.experts.*.w2": Place("ffn_down_exps"),
    "block_sparse_moe.experts.*.w3": Place("ffn_up_exps"),
}
QWEN3_MOE: Places = {
    **_ROTARY,
    "mlp.gate": Place("ffn_gate_inp"),
    "mlp.experts.*.gate_proj": Place("ffn_gate_exps"),
    "mlp.experts.*.down_proj": Place("ffn_down_exps"),
    "mlp.experts.*.up_proj": Place("ffn_up_exps"),
}
GPT2: Places = {
    "wte": Place("token_embd"),
    "wpe": Place("position_embd"),
    "ln_f": Place("output_norm"),
    "lm_head": Place("output"),
    "ln_1": Place("attn_norm"),
    "ln_2": Place("ffn_norm"),
    "attn.c_attn": Place("attn_qkv", is_transposed=True),
    "attn.c_proj": Place("attn_output", is_transposed=True),
    "mlp.c_fc": Place("ffn_up", is_transposed=True),
    "mlp.c_proj": Place("ffn_down", is_transposed=True),
}
# transformers multiplies by 1 + weight, llama.cpp by the weight.
GEMMA3: Places = {
    **QWEN,
    "norm": Place("output_norm", offset=1.0),
    "input_layernorm": Place("attn_norm", offset=1.0),
    "post_attention_layernorm": Place("post_attention_norm", offset=1.0),
    "pre_feedforward_layernorm": Place("ffn_norm", offset=1.0),
    "post_feedforward_layernorm": Place("post_ffw_norm", offset=1.0),
    "self_attn.q_norm": Place("attn_q_norm", offset=1.0),
    "self_attn.k_norm": Place("attn_k_norm", offset=1.0),
}
OLMO2: Places = {
    **_OUTSIDE,
    **_ATTENTION,
    **_GATED,
    "post_attention_layernorm": Place("post_attention_norm"),
    "post_feedforward_layernorm": Place("post_ffw_norm"),
}
PHI3: Places = {
    **_OUTSIDE,
    **_NORMS,
    "self_attn.qkv_proj": Place("attn_qkv"),
    "self_attn.o_proj": Place("attn_output"),
    "mlp.gate_up_proj": Place("ffn_up"),
    "mlp.down_proj": Place("ffn_down"),
}
GPT_NEOX: Places = {
    **_NORMS,
    "embed_in": Place("token_embd"),
    "final_layer_norm": Place("output_norm"),
    "embed_out": Place("output"),
    "attention.query_key_value": Place("attn_qkv", joined="num_attention_heads"),
    "attention.dense": Place("attn_output"),
    "mlp.dense_h_to_4h": Place("ffn_up"),
    "mlp.dense_4h_to_h": Place("ffn_down"),
}
