"""The fused ops by name. Each takes NumPy arrays (runs at once), tape tensors (runs at once and is recorded), or
values of a graph that is being recorded (runs when planned). `<op>_backward(gradient, *inputs, **options)` returns the
gradients of the inputs, in their order, None for those that have none.

All numbers are float32; indices are int32. Shape letters: B samples, T positions, R = B T rows, D width, F
feed-forward width, H query heads, G key and value heads, hd head width, V vocabulary, S shards. Axes written `...`
may be any. A wrong type raises TypeError, a wrong shape or value ValueError; both name op, argument and rule.
"""

from mudd_core.ops.attentions import attention, attention_backward, pattention, pattention_backward
from mudd_core.ops.call import custom
from mudd_core.ops.elementwise import (
    activation,
    activation_backward,
    add,
    add_backward,
    dropout,
    dropout_backward,
    glu,
    glu_backward,
)
from mudd_core.ops.experts import (
    grouped_gemm,
    grouped_gemm_backward,
    moe_balance,
    moe_balance_backward,
    moe_route,
    moe_route_backward,
)
from mudd_core.ops.mixing import depth_mix, depth_mix_backward
from mudd_core.ops.norms import layer_norm, layer_norm_backward, rms_norm, rms_norm_backward
from mudd_core.ops.optimizers import adamw, adamw_backward, lion, lion_backward, sgd, sgd_backward
from mudd_core.ops.products import cross_entropy, cross_entropy_backward, linear, linear_backward
from mudd_core.ops.tokens import embedding, embedding_backward, rope, rope_backward

__all__ = [
    "activation", "activation_backward", "adamw", "adamw_backward", "add", "add_backward", "attention",
    "attention_backward", "cross_entropy",
    "cross_entropy_backward", "custom", "depth_mix", "depth_mix_backward", "dropout",
    "dropout_backward", "embedding", "embedding_backward", "glu",
    "glu_backward", "grouped_gemm", "grouped_gemm_backward", "layer_norm", "layer_norm_backward", "linear",
    "linear_backward", "lion", "lion_backward", "moe_balance", "moe_balance_backward", "moe_route",
    "moe_route_backward", "pattention", "pattention_backward", "rms_norm", "rms_norm_backward", "rope",
    "rope_backward", "sgd", "sgd_backward",
]  # fmt: skip
