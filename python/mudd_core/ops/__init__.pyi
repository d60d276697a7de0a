"""Types of the ops; written by tests/stubs.py."""

# A checker takes the first overload that fits, so that arrays alone give arrays although they fit the second too.
# mypy: disable-error-code="overload-overlap"

from collections.abc import Callable, Sequence
from typing import TypeVar, overload

from mudd_core.base.types import Array, Float32, Float64, Int32
from mudd_core.graph.recording import Like as Like
from mudd_core.graph.tape import Tensor

T = TypeVar("T", bound=Like)
Given = Array | Tensor

__all__: list[str] = ['custom', 'activation', 'activation_backward', 'add', 'add_backward', 'attention', 'attention_backward', 'cross_entropy', 'cross_entropy_backward', 'depth_mix', 'depth_mix_backward', 'dropout', 'dropout_backward', 'embedding', 'embedding_backward', 'glu', 'glu_backward', 'grouped_gemm', 'grouped_gemm_backward', 'layer_norm', 'layer_norm_backward', 'linear', 'linear_backward', 'lora', 'lora_backward', 'moe_balance', 'moe_balance_backward', 'moe_route', 'moe_route_backward', 'ngram_rows', 'ngram_rows_backward', 'pattention', 'pattention_backward', 'preference_loss', 'preference_loss_backward', 'regularized_loss', 'regularized_loss_backward', 'rms_norm', 'rms_norm_backward', 'rope', 'rope_backward', 'teacher_loss', 'teacher_loss_backward', 'adamw', 'adamw_backward', 'lion', 'lion_backward', 'sgd', 'sgd_backward']

@overload
def custom(forward: Callable[..., Array], backward: Callable[..., Array | Sequence[Array | None]], *inputs: Array) -> Float32:
    """Run two NumPy functions as an op, in either executor.

    forward(*inputs) returns one float32 array or a tuple. backward(*output_gradients, *inputs) returns one gradient per
    input, None for an input without one. Output shapes are inferred from one call on zeros."""
@overload
def custom(forward: Callable[..., Array], backward: Callable[..., Array | Sequence[Array | None]], *inputs: Given) -> Tensor: ...
@overload
def custom(forward: Callable[..., Array], backward: Callable[..., Array | Sequence[Array | None]], *inputs: T) -> T: ...
@overload
def custom(forward: Callable[..., tuple[Array, ...]], backward: Callable[..., Array | Sequence[Array | None]], *inputs: Array) -> tuple[Float32, ...]: ...
@overload
def custom(forward: Callable[..., tuple[Array, ...]], backward: Callable[..., Array | Sequence[Array | None]], *inputs: Given) -> tuple[Tensor, ...]: ...
@overload
def custom(forward: Callable[..., tuple[Array, ...]], backward: Callable[..., Array | Sequence[Array | None]], *inputs: T) -> tuple[T, ...]: ...

@overload
def activation(x: Array, *, activation: str = 'gelu_tanh') -> Float32:
    """y = act(x), element by element.

    Options:
        activation: function; the functions after squared_relu are as in jax.nn. Values: none, silu, gelu_tanh, gelu_erf, relu, squared_relu, relu6, sigmoid, tanh, softplus, log_sigmoid, soft_sign, leaky_relu, hard_sigmoid, hard_silu, hard_tanh, elu, selu, squareplus, mish, sparse_plus, sparse_sigmoid."""
@overload
def activation(x: Given, *, activation: str = 'gelu_tanh') -> Tensor: ...
@overload
def activation(x: T, *, activation: str = 'gelu_tanh') -> T: ...

def activation_backward(dy: Given, x: Given, *, activation: str = 'gelu_tanh') -> tuple[Float32]:
    """Gradients (dx,) of activation; None for absent inputs."""

@overload
def add(a: Array, b: Array) -> Float32:
    """y = a + b, shapes equal."""
@overload
def add(a: Given, b: Given) -> Tensor: ...
@overload
def add(a: T, b: T) -> T: ...

def add_backward(dy: Given, a: Given, b: Given) -> tuple[Float32, Float32]:
    """Gradients (da, db) of add; None for absent inputs."""

@overload
def attention(q: Array, k: Array, v: Array, segments: Array | None = None, key_mask: Array | None = None, k_cache: Array | None = None, v_cache: Array | None = None, *, n_head: int = 0, n_kv_head: int = 0, scale: float = 0.0, causal: bool = True, window: int = 0, activation: str = 'softmax', divisor: int = 0, eps: float = 1e-05, ring: bool = False, dropout: float = 0.0, purpose: str = 'dropout') -> Float32:
    """softmax(scale q k^T + mask) v by tiles, never T x T (Dao et al. 2022).

    q [B, T, H*hd], k and v [B, T, G*hd]; head h reads group h // (H / G). segments and key_mask are int32 [B, T]: a
    query sees keys of its own segment whose mask is 1, and no later keys if causal. With window, a query sees only
    itself and the window - 1 keys before it; other tiles are skipped. The output of a query without visible keys is 0.
    k_cache, v_cache [B, G, Tmax, hd]: caches for decoding. The keys and values of this call are stored after the cached
    ones, and the query sees all of them; scopes.cached(length) sets the number of cached positions. dropout: if
    gradients are computed, a probability is set to 0 with this probability, else divided by 1 - dropout.
    activation of the scores s: softmax; sqrelu = relu(s)^2 / divisor; elu = (elu(s) + 1) / divisor. norm_sqrelu and
    norm_elu divide by eps + their sum over the visible keys instead (docs/maths/mup.md, 1.2).

    Options:
        n_head: heads of q; 0: the third of its four axes. Values: at least 0.
        n_kv_head: heads of k and v; 0: n_head. Values: at least 0.
        scale: factor of the scores; 0: 1 / sqrt(hd). Values: a number >= 0.
        causal: a query sees no later keys.
        window: keys that a query sees, itself included; 0: all. Values: at least 0.
        activation: function of the scores. Values: softmax, sqrelu, elu, norm_sqrelu, norm_elu.
        divisor: divisor of sqrelu and elu; 0: T. Values: at least 0.
        eps: norm_sqrelu and norm_elu: added to the sum that divides the scores. Values: a number >= 0.
        ring: if the cache has Tmax tokens, a new token replaces the oldest one.
        dropout: probability of dropping a score. Values: a number in [0, 1).
        purpose: key of the random draws."""
@overload
def attention(q: Given, k: Given, v: Given, segments: Given | None = None, key_mask: Given | None = None, k_cache: Given | None = None, v_cache: Given | None = None, *, n_head: int = 0, n_kv_head: int = 0, scale: float = 0.0, causal: bool = True, window: int = 0, activation: str = 'softmax', divisor: int = 0, eps: float = 1e-05, ring: bool = False, dropout: float = 0.0, purpose: str = 'dropout') -> Tensor: ...
@overload
def attention(q: T, k: T, v: T, segments: Like | None = None, key_mask: Like | None = None, k_cache: T | None = None, v_cache: T | None = None, *, n_head: int = 0, n_kv_head: int = 0, scale: float = 0.0, causal: bool = True, window: int = 0, activation: str = 'softmax', divisor: int = 0, eps: float = 1e-05, ring: bool = False, dropout: float = 0.0, purpose: str = 'dropout') -> T: ...

def attention_backward(do: Given, q: Given, k: Given, v: Given, segments: Given | None = None, key_mask: Given | None = None, *, n_head: int = 0, n_kv_head: int = 0, scale: float = 0.0, causal: bool = True, window: int = 0, activation: str = 'softmax', divisor: int = 0, eps: float = 1e-05, ring: bool = False, dropout: float = 0.0, purpose: str = 'dropout') -> tuple[Float32, Float32, Float32, None, None]:
    """Gradients (dq, dk, dv, None, None) of attention; None for absent inputs."""

@overload
def cross_entropy(h: Array, head: Array, targets: Array, bias: Array | None = None, *, by_sample: bool = False, chunk_bytes: int = 16777216) -> tuple[Float64, Float64, Float32]:
    """Fused unembedding, softmax and loss: (loss float64 [S], counted float64 [S], guessed).

    h [B, T, D], head [V, D], targets int32 [B, T]; a negative target is ignored. bias [V] is added to the logits. loss
    is the sum of nats of each shard, counted the number of its targets. The logits are computed in chunks. guessed
    float32 [B, 2] is the number of correct predictions of each sample, and their fraction of its counted targets. A
    prediction is the largest logit (the first of equal ones). With by_sample, guessed is [B, 4].

    Options:
        by_sample: guessed also has the nats of each sample, and the number of its targets.
        chunk_bytes: bytes of logits that exist at once. Values: at least 1."""
@overload
def cross_entropy(h: Given, head: Given, targets: Given, bias: Given | None = None, *, by_sample: bool = False, chunk_bytes: int = 16777216) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def cross_entropy(h: T, head: T, targets: Like, bias: T | None = None, *, by_sample: bool = False, chunk_bytes: int = 16777216) -> tuple[T, T, T]: ...

def cross_entropy_backward(dloss: Given | None | tuple[Given | None, ...], h: Given, head: Given, targets: Given, bias: Given | None = None, *, by_sample: bool = False, chunk_bytes: int = 16777216) -> tuple[Float32, Float32, None, Float32 | None]:
    """Gradients (dh, dhead, None, dbias) of cross_entropy; None for absent inputs.

    Of the summed loss, scaled per shard by dloss (None: 1)."""

@overload
def depth_mix(bias: Array, w1: Array | None = None, w2: Array | None = None, generator_gain: Array | None = None, gain_0: Array | None = None, gain_1: Array | None = None, gain_2: Array | None = None, gain_3: Array | None = None, newest: Array | None = None, *states: Array, direct: bool = False, post_norm: bool = False, activation: str = 'gelu_tanh', eps: float = 1e-06, norm_eps: float = 1e-06) -> Float32 | tuple[Float32, ...]:
    """C streams as weighted sums of l earlier states, with weights for each token.

    Xiao et al. 2025, MUDDFormer.
    states: l arrays [..., D]; X is newest, or the last state if newest is absent. With w1 [D, K] and w2 [K, C*l] the
    weights are A = act(rms(X; generator_gain) w1) w2 + bias, with column c*l + j for stream c and state j. Without them
    A = bias [C, l]. Stream c is sum_j A[c, j] states[j] (+ X if direct). If gain_c [D] is passed, the stream is then
    rms-normalized; only leading streams can have a gain. C is 1 to 4; the result is one array for C = 1, else a tuple.

    Options:
        direct: add X to each stream.
        post_norm: the last stream is X + rms(sum; its gain).
        activation: function of the generator. Values: none, silu, gelu_tanh, gelu_erf, relu, squared_relu.
        eps: epsilon of the generator's norm. Values: a number >= 0.
        norm_eps: epsilon of the norms of the streams. Values: a number >= 0."""
@overload
def depth_mix(bias: Given, w1: Given | None = None, w2: Given | None = None, generator_gain: Given | None = None, gain_0: Given | None = None, gain_1: Given | None = None, gain_2: Given | None = None, gain_3: Given | None = None, newest: Given | None = None, *states: Given, direct: bool = False, post_norm: bool = False, activation: str = 'gelu_tanh', eps: float = 1e-06, norm_eps: float = 1e-06) -> Tensor | tuple[Tensor, ...]: ...
@overload
def depth_mix(bias: Like | None, w1: Like | None = None, w2: Like | None = None, generator_gain: Like | None = None, gain_0: Like | None = None, gain_1: Like | None = None, gain_2: Like | None = None, gain_3: Like | None = None, newest: Like | None = None, *states: Like | None, direct: bool = False, post_norm: bool = False, activation: str = 'gelu_tanh', eps: float = 1e-06, norm_eps: float = 1e-06) -> Like | tuple[Like, ...]: ...

def depth_mix_backward(dy: Given | tuple[Given | None, ...], bias: Given, w1: Given | None = None, w2: Given | None = None, generator_gain: Given | None = None, gain_0: Given | None = None, gain_1: Given | None = None, gain_2: Given | None = None, gain_3: Given | None = None, newest: Given | None = None, *states: Given, direct: bool = False, post_norm: bool = False, activation: str = 'gelu_tanh', eps: float = 1e-06, norm_eps: float = 1e-06) -> tuple[Float32 | None, ...]:
    """Gradients (dbias, dw1, dw2, dgenerator_gain, dgain_0, dgain_1, dgain_2, dgain_3, dnewest, one for each of states) of depth_mix; None for absent inputs.

    dy is the gradient of the stream, or a tuple, None for zero."""

@overload
def dropout(x: Array, residual: Array | None = None, *, rate: float = 0.0, purpose: str = 'dropout') -> Float32:
    """y = residual + m x / (1 - rate) (Srivastava et al. 2014), m one with probability 1 - rate, else zero.

    x and residual are [B, T, D]. If no gradient of x is computed, y = residual + x. The random draws depend only on
    seed, `purpose`, step, sample, position and channel.

    Options:
        rate: probability of dropping an element. Values: a number in [0, 1).
        purpose: key of the random draws."""
@overload
def dropout(x: Given, residual: Given | None = None, *, rate: float = 0.0, purpose: str = 'dropout') -> Tensor: ...
@overload
def dropout(x: T, residual: T | None = None, *, rate: float = 0.0, purpose: str = 'dropout') -> T: ...

def dropout_backward(dy: Given, x: Given, residual: Given | None = None, *, rate: float = 0.0, purpose: str = 'dropout') -> tuple[Float32, Float32 | None]:
    """Gradients (dx, dresidual) of dropout; None for absent inputs.

    The draws are those of the forward pass."""

@overload
def embedding(ids: Array | None = None, table: Array | None = None, residual: Array | None = None, *, positions: bool = False, sinusoids: int = 0, scale: float = 1.0) -> Float32:
    """y = scale table[ids] (+ residual). ids int32 [B, T], table [V, D].

    positions: use the position t as the row of a token. sinusoids: row p is sin(p w), then cos(p w), with w from 1 down
    to 1/10000 in equal ratios (Vaswani et al. 2017) and the width of the residual.

    Options:
        positions: without ids: the row of a token is its position.
        sinusoids: number of rows of sines and cosines, which replace the table. Values: 0 to 16777215.
        scale: factor of the rows of the table. Values: a finite number."""
@overload
def embedding(ids: Given | None = None, table: Given | None = None, residual: Given | None = None, *, positions: bool = False, sinusoids: int = 0, scale: float = 1.0) -> Tensor: ...
@overload
def embedding(ids: Like | None = None, table: T | None = None, residual: T | None = None, *, positions: bool = False, sinusoids: int = 0, scale: float = 1.0) -> T: ...

def embedding_backward(dy: Given, ids: Given | None = None, table: Given | None = None, residual: Given | None = None, *, positions: bool = False, sinusoids: int = 0, scale: float = 1.0) -> tuple[None, Float32 | None, Float32 | None]:
    """Gradients (None, dtable, dresidual) of embedding; None for absent inputs."""

@overload
def glu(gate: Array, up: Array, *, activation: str = 'silu') -> Float32:
    """y = act(gate) * up (Shazeer 2020). Shapes equal.

    Options:
        activation: function of the gate. Values: none, silu, gelu_tanh, gelu_erf, relu, squared_relu."""
@overload
def glu(gate: Given, up: Given, *, activation: str = 'silu') -> Tensor: ...
@overload
def glu(gate: T, up: T, *, activation: str = 'silu') -> T: ...

def glu_backward(dy: Given, gate: Given, up: Given, *, activation: str = 'silu') -> tuple[Float32, Float32]:
    """Gradients (dgate, dup) of glu; None for absent inputs."""

@overload
def grouped_gemm(x: Array, gates: Array, experts: Array, gate: Array, up: Array, down: Array, residual: Array | None = None, gate_up_a: Array | None = None, gate_up_b: Array | None = None, down_a: Array | None = None, down_b: Array | None = None, *, activation: str = 'silu', full_drop: str = 'passthrough', scale: float = 1.0, packed_at_once: int = 268435456) -> Float32:
    """y = residual + sum over a token's slots of gates (act(x gate_e) * (x up_e)) down_e.

    All experts in one call.
    x [B, T, D]; gates and experts (int32, -1 = none) [B, T, k] from moe_route; gate and up [E, D, F]; down [E, F, D].
    The op sorts tokens by expert. An expert may have no tokens or all of them. Low-rank adapters add scale A[e] B[e] to
    the weights of expert e without computing them: gate and up share gate_up_a [E, D, rank], and gate_up_b
    [E, 2 rank, F] has the rows of gate, then of up; down_a [E, F, rank], down_b [E, rank, D].

    Options:
        activation: function of the gate. Values: none, silu, gelu_tanh, gelu_erf, relu, squared_relu.
        full_drop: result for a token without an expert: x, or zero. Values: passthrough, zero.
        scale: factor of the adapters' output (alpha / rank). Values: a finite number.
        packed_at_once: bytes of weights that are packed at once. Values: at least 0."""
@overload
def grouped_gemm(x: Given, gates: Given, experts: Given, gate: Given, up: Given, down: Given, residual: Given | None = None, gate_up_a: Given | None = None, gate_up_b: Given | None = None, down_a: Given | None = None, down_b: Given | None = None, *, activation: str = 'silu', full_drop: str = 'passthrough', scale: float = 1.0, packed_at_once: int = 268435456) -> Tensor: ...
@overload
def grouped_gemm(x: T, gates: T, experts: Like, gate: T, up: T, down: T, residual: T | None = None, gate_up_a: T | None = None, gate_up_b: T | None = None, down_a: T | None = None, down_b: T | None = None, *, activation: str = 'silu', full_drop: str = 'passthrough', scale: float = 1.0, packed_at_once: int = 268435456) -> T: ...

def grouped_gemm_backward(dy: Given, x: Given, gates: Given, experts: Given, gate: Given, up: Given, down: Given, residual: Given | None = None, gate_up_a: Given | None = None, gate_up_b: Given | None = None, down_a: Given | None = None, down_b: Given | None = None, *, activation: str = 'silu', full_drop: str = 'passthrough', scale: float = 1.0, packed_at_once: int = 268435456) -> tuple[Float32, Float32, None, Float32, Float32, Float32, Float32 | None, Float32 | None, Float32 | None, Float32 | None, Float32 | None]:
    """Gradients (dx, dgates, None, dgate, dup, ddown, dresidual, dgate_up_a, dgate_up_b, ddown_a, ddown_b) of grouped_gemm; None for absent inputs."""

@overload
def layer_norm(x: Array, gain: Array | None = None, bias: Array | None = None, *, eps: float = 1e-05, gain_offset: float = 0.0, scale: float = 1.0) -> Float32:
    """y = scale ((x - mean) / sqrt(var + eps) (gain_offset + gain) + bias) over the last axis.

    Ba et al. 2016. x [..., D], gain and bias [D] (absent: ones and zeros).

    Options:
        eps: added to the variance. Values: a number >= 0.
        gain_offset: added to the gain; 1: gain is the distance from 1. Values: a finite number.
        scale: factor of the result. Values: a finite number."""
@overload
def layer_norm(x: Given, gain: Given | None = None, bias: Given | None = None, *, eps: float = 1e-05, gain_offset: float = 0.0, scale: float = 1.0) -> Tensor: ...
@overload
def layer_norm(x: T, gain: T | None = None, bias: T | None = None, *, eps: float = 1e-05, gain_offset: float = 0.0, scale: float = 1.0) -> T: ...

def layer_norm_backward(dy: Given, x: Given, gain: Given | None = None, bias: Given | None = None, *, eps: float = 1e-05, gain_offset: float = 0.0, scale: float = 1.0) -> tuple[Float32, Float32 | None, Float32 | None]:
    """Gradients (dx, dgain, dbias) of layer_norm; None for absent inputs."""

@overload
def linear(x: Array, w: Array, bias: Array | None = None, residual: Array | None = None, *, activation: str = 'none', transposed: bool = False, full_precision: bool = False) -> Float32:
    """y = act(x w + bias) + residual.

    x [..., K], w [K, N] (transposed: [N, K]), bias [N], residual like y.

    Options:
        activation: function of x w + bias. Values: none, silu, gelu_tanh, gelu_erf, relu, squared_relu.
        transposed: w is [N, K].
        full_precision: y stays fp32 in a bf16 graph, as with a residual."""
@overload
def linear(x: Given, w: Given, bias: Given | None = None, residual: Given | None = None, *, activation: str = 'none', transposed: bool = False, full_precision: bool = False) -> Tensor: ...
@overload
def linear(x: T, w: T, bias: T | None = None, residual: T | None = None, *, activation: str = 'none', transposed: bool = False, full_precision: bool = False) -> T: ...

def linear_backward(dy: Given, x: Given, w: Given, bias: Given | None = None, residual: Given | None = None, *, activation: str = 'none', transposed: bool = False, full_precision: bool = False) -> tuple[Float32, Float32, Float32 | None, Float32 | None]:
    """Gradients (dx, dw, dbias, dresidual) of linear; None for absent inputs."""

@overload
def lora(x: Array, w: Array, a: Array, b: Array, bias: Array | None = None, residual: Array | None = None, *, scale: float = 1.0, rate: float = 0.0, purpose: str = 'lora') -> Float32:
    """y = x w + scale (d x) a b + bias + residual (Hu et al. 2021): a matrix and its low-rank adapter.

    x [..., K], w [K, N], a [K, rank], b [rank, N], bias [N]; residual has the shape of y. d is dropout: it drops
    elements of x with probability `rate` and divides the others by 1 - rate, if a gradient of a is computed. The random
    draws depend only on seed, `purpose`, step, sample, position and channel.

    Options:
        scale: factor of the adapter's output (alpha / rank). Values: a finite number.
        rate: probability of dropping an element of x. Values: a number in [0, 1).
        purpose: key of the random draws."""
@overload
def lora(x: Given, w: Given, a: Given, b: Given, bias: Given | None = None, residual: Given | None = None, *, scale: float = 1.0, rate: float = 0.0, purpose: str = 'lora') -> Tensor: ...
@overload
def lora(x: T, w: T, a: T, b: T, bias: T | None = None, residual: T | None = None, *, scale: float = 1.0, rate: float = 0.0, purpose: str = 'lora') -> T: ...

def lora_backward(dy: Given, x: Given, w: Given, a: Given, b: Given, bias: Given | None = None, residual: Given | None = None, *, scale: float = 1.0, rate: float = 0.0, purpose: str = 'lora') -> tuple[Float32, Float32, Float32, Float32, Float32 | None, Float32 | None]:
    """Gradients (dx, dw, da, db, dbias, dresidual) of lora; None for absent inputs."""

@overload
def moe_balance(targets: Array, *metrics: Array, form: str = 'pooled', scope: str = 'shard', balance: float = 0.0, z: float = 0.0, top_k: int = 2) -> tuple[Float64, Float64, Float64]:
    """Auxiliary losses of a mixture, float64 [S] each: (n (balance A + z Z), n A, n Z).

    n: counted targets of a shard.
    metrics: outputs of moe_route, one per layer. form: pooled (one product of averages over all layers, as in
    transformers) or per_layer (a sum of the losses of the layers, as in Megatron-LM).
    Z = sum over layers of the mean squared log-sum-exp of the router's logits (Zoph et al. 2022).

    Options:
        form: one product of averages over all layers, or a sum of products. Values: pooled, per_layer.
        scope: tokens that are averaged: of a shard or of the batch. Values: shard, batch.
        balance: coefficient of the balance loss. Values: a finite number.
        z: coefficient of the router z-loss. Values: a finite number.
        top_k: experts of a token. Values: at least 1."""
@overload
def moe_balance(targets: Given, *metrics: Given, form: str = 'pooled', scope: str = 'shard', balance: float = 0.0, z: float = 0.0, top_k: int = 2) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def moe_balance(targets: Like, *metrics: T, form: str = 'pooled', scope: str = 'shard', balance: float = 0.0, z: float = 0.0, top_k: int = 2) -> tuple[T, T, T]: ...

def moe_balance_backward(dloss: Given | None | tuple[Given | None, ...], targets: Given, *metrics: Given, form: str = 'pooled', scope: str = 'shard', balance: float = 0.0, z: float = 0.0, top_k: int = 2) -> tuple[Float32 | None, ...]:
    """Gradients (None, one for each of metrics) of moe_balance; None for absent inputs.

    Of the first output, scaled per shard by dloss (None: 1)."""

@overload
def moe_route(x: Array, w: Array, segments: Array | None = None, key_mask: Array | None = None, *, top_k: int = 2, capacity_factor: float = 0.0, capacity_scope: str = 'sequence', drop_policy: str = 'position', jitter: float = 0.0, layer: int = 0) -> tuple[Float32, Int32, Float32]:
    """The top-k router of a mixture of E experts: (gates, experts int32, both [B, T, k], metrics).

    Jiang et al. 2024.
    x [B, T, D], w [D, E], p = softmax(x w). The k largest p are chosen (on ties the lower expert) and divided by their
    sum: these are the gates. capacity_factor > 0: an expert accepts at most floor(T k factor / E) slots of a sequence,
    rounded up per shard instead. For other slots the expert becomes -1 and the gate 0. jitter e: if gradients are
    computed, x is multiplied by uniform random values in [1 - e, 1 + e], drawn by seed, step, sample and layer.
    metrics float32 [B, 4 E + 3] are sums over each sample, with E values each for: slots routed to an expert before
    dropping, probabilities, slots that an expert processes, dropped slots. Then come the squared log-sum-exp, the tokens
    and the entropy in nats. Tokens with segment 0 or mask 0 (int32 [B, T]) are padding. They are routed and dropped like
    others, but the metrics include them only in processed and dropped slots.

    Options:
        top_k: experts of a token. Values: an int.
        capacity_factor: largest number of slots of an expert, relative to T k / E; 0: no limit. Values: a number >= 0.
        capacity_scope: tokens that a capacity applies to: of a sequence or of a shard. Values: sequence, shard.
        drop_policy: slots that are kept: the first ones, or the ones with the largest gates. Values: position, probs.
        jitter: width of the noise on the router's input. Values: a number in [0, 1).
        layer: counter of the random draws. Values: an int."""
@overload
def moe_route(x: Given, w: Given, segments: Given | None = None, key_mask: Given | None = None, *, top_k: int = 2, capacity_factor: float = 0.0, capacity_scope: str = 'sequence', drop_policy: str = 'position', jitter: float = 0.0, layer: int = 0) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def moe_route(x: T, w: T, segments: Like | None = None, key_mask: Like | None = None, *, top_k: int = 2, capacity_factor: float = 0.0, capacity_scope: str = 'sequence', drop_policy: str = 'position', jitter: float = 0.0, layer: int = 0) -> tuple[T, T, T]: ...

def moe_route_backward(dgates: Given | tuple[Given | None, ...], x: Given, w: Given, segments: Given | None = None, key_mask: Given | None = None, *, top_k: int = 2, capacity_factor: float = 0.0, capacity_scope: str = 'sequence', drop_policy: str = 'position', jitter: float = 0.0, layer: int = 0) -> tuple[Float32, Float32, None, None]:
    """Gradients (dx, dw, None, None) of moe_route; None for absent inputs.

    Pass the gradient of the gates, or a tuple (of the gates, None, of the metrics). Among the metrics,
    only the sums of probabilities and of the squared log-sum-exp have gradients."""

@overload
def ngram_rows(ids: Array, table: Array, segments: Array | None = None, cache: Array | None = None, *, orders: str = '2,3', seed: int = 0, end: int = -1) -> Float32:
    """y = sum over orders of sign * table[row]: a row for each n-gram that ends at a token.

    ids int32 [B, T], table [R, D], y [B, T, D]. Tokens before the sequence, of another segment (segments int32 [B, T]), or
    of a document that ended with the token `end` count as absent. Let x_k be the token at t - k plus 1, or 0 if it is
    absent. In integers modulo 2^64, h = mix(4 seed + order); h = mix(h + x_k) for k = order - 1, ..., 0. The row is
    (h >> 32) R >> 32, and the sign is 1 for an even h, else -1. mix is the finalizer of SplitMix64 (Steele et al. 2014).
    Signs let the rows of colliding n-grams cancel on average (Weinberger et al. 2009). cache [B, 1, Tmax, 1]: the ids so
    far, for decoding; scopes.cached(length) sets their number.

    Options:
        orders: numbers of tokens of the n-grams: of 1, 2 and 3.
        seed: seed of the hash. Values: 0 to 2147483647.
        end: token that ends a document; -1: none. Values: -1 to 2147483647."""
@overload
def ngram_rows(ids: Given, table: Given, segments: Given | None = None, cache: Given | None = None, *, orders: str = '2,3', seed: int = 0, end: int = -1) -> Tensor: ...
@overload
def ngram_rows(ids: Like, table: T, segments: Like | None = None, cache: T | None = None, *, orders: str = '2,3', seed: int = 0, end: int = -1) -> T: ...

def ngram_rows_backward(dy: Given, ids: Given, table: Given, segments: Given | None = None, *, orders: str = '2,3', seed: int = 0, end: int = -1) -> tuple[None, Float32, None]:
    """Gradients (None, dtable, None) of ngram_rows; None for absent inputs."""

@overload
def pattention(x: Array, key: Array, value: Array, key_bias: Array | None = None, value_bias: Array | None = None, residual: Array | None = None, *more: Array | None, norm: str = 'l2_norm_gelu', gelu: str = 'gelu_tanh', eps: float = 1e-05, zoom: float = 0.0, scale_factor: float = 1.0, keep_scores: bool = True, drop_path: float = 0.0, purpose: str = 'drop_path') -> Float32 | tuple[Float32, ...]:
    """y = scale_factor Theta(x key^T + key_bias) value + value_bias.

    Token-parameter attention (Wang et al. 2024).
    x [..., D], key [n, D], value [n, D2], key_bias [n], value_bias [D2]; residual has the shape of y and is added.
    more: key, value, key_bias, value_bias of further projections of the same x, None if absent; the result is then a
    tuple. norm, with tau = sqrt(zoom or n) and |.| the norm of a row: l2_norm_gelu = gelu(tau a / (|a| + eps)),
    gelu_l2_norm = tau gelu(a) / (|gelu(a)| + eps), l2_norm = tau a / (|a| + eps), softmax = n softmax(a), gelu,
    gelu_layer_norm (eps is in the root of the variance). If the norm of a row is zero, its result and gradient are zero.
    drop_path: if gradients are computed, whole samples of y are dropped with this probability, and the others are
    divided by 1 - drop_path.

    Options:
        norm: Theta, the function of a row of scores. Values: l2_norm_gelu, gelu_l2_norm, l2_norm, softmax, gelu, gelu_layer_norm.
        gelu: form of GELU in the norm. Values: gelu_tanh, gelu_erf.
        eps: epsilon of the norm. Values: a number >= 0.
        zoom: tau squared; 0: n. Values: a number >= 0.
        scale_factor: factor of Theta. Values: a finite number.
        keep_scores: keep the scores for backward; false: recompute them, with the same bits.
        drop_path: probability of dropping a whole sample of y. Values: a number in [0, 1].
        purpose: key of the random draws."""
@overload
def pattention(x: Given, key: Given, value: Given, key_bias: Given | None = None, value_bias: Given | None = None, residual: Given | None = None, *more: Given | None, norm: str = 'l2_norm_gelu', gelu: str = 'gelu_tanh', eps: float = 1e-05, zoom: float = 0.0, scale_factor: float = 1.0, keep_scores: bool = True, drop_path: float = 0.0, purpose: str = 'drop_path') -> Tensor | tuple[Tensor, ...]: ...
@overload
def pattention(x: Like | None, key: Like | None, value: Like | None, key_bias: Like | None = None, value_bias: Like | None = None, residual: Like | None = None, *more: Like | None, norm: str = 'l2_norm_gelu', gelu: str = 'gelu_tanh', eps: float = 1e-05, zoom: float = 0.0, scale_factor: float = 1.0, keep_scores: bool = True, drop_path: float = 0.0, purpose: str = 'drop_path') -> Like | tuple[Like, ...]: ...

def pattention_backward(dy: Given | tuple[Given | None, ...], x: Given, key: Given, value: Given, key_bias: Given | None = None, value_bias: Given | None = None, residual: Given | None = None, *more: Given | None, norm: str = 'l2_norm_gelu', gelu: str = 'gelu_tanh', eps: float = 1e-05, zoom: float = 0.0, scale_factor: float = 1.0, keep_scores: bool = True, drop_path: float = 0.0, purpose: str = 'drop_path') -> tuple[Float32 | None, ...]:
    """Gradients (dx, dkey, dvalue, dkey_bias, dvalue_bias, dresidual, one for each of more) of pattention; None for absent inputs.

    dy is one array, or a tuple with one for each projection."""

@overload
def preference_loss(h: Array, head: Array, targets: Array, bias: Array | None = None, reference: Array | None = None, nll: Array | None = None, segments: Array | None = None, *, loss: str = 'dpo', beta: float = 0.1, label_smoothing: float = 0.0, pairs: int = 1, chunk_bytes: int = 16777216) -> tuple[Float64, Float64, Float32, Float64]:
    """Loss of pairs of answers: (loss float64 [S], pairs float64 [S], ranked, log_probs float64 [B]).

    h [B, T, D], head [V, D], targets int32 [B, T]; a negative target is ignored. bias [V] is added to the logits.
    Samples 2p and 2p + 1 are the chosen and the rejected answer of pair p. log_probs: the sum l of the log-probabilities
    of a sample's targets; a: their mean. reference [B, W]: a row's sum is the same sum L under a reference model (dpo).
    dpo: m = beta ((l_c - L_c) - (l_r - L_r)), loss = -(1 - label_smoothing) log sigmoid(m) - label_smoothing log
    sigmoid(-m). orpo: m = beta (a_c - a_r), loss = -a_c - beta log sigmoid(logit(exp(a_c)) - logit(exp(a_r))).
    nll [B, 5] (orpo): columns 0 and 1 are the first position of the answer's targets in a row and the one after the last;
    l and a have only these. w: the sum of the other columns. -w times the sum of the log-probabilities of all targets of
    the chosen row replaces -a_c. loss is the sum over the pairs of each shard. ranked float32 [B, 2]: for a chosen answer
    1 if m > 0, and m.
    pairs > 1: segments int32 [B, T] are the numbers of the answers in a sample, ascending from 1 to pairs. Answers of equal
    number in samples 2p and 2p + 1 are a pair. reference [B, pairs W] and nll [B, 5 pairs] have the columns of each answer.
    log_probs has B pairs values. ranked has the sums over the pairs of a sample.

    Options:
        loss: formula of the loss. Values: dpo, orpo.
        beta: scale of the margin, or weight of the odds ratio. Values: a number >= 0.
        label_smoothing: probability of a swapped pair (dpo). Values: a number in [0, 0.5].
        pairs: most pairs in a sample. Values: 1 to 64.
        chunk_bytes: bytes of logits that exist at once. Values: at least 1."""
@overload
def preference_loss(h: Given, head: Given, targets: Given, bias: Given | None = None, reference: Given | None = None, nll: Given | None = None, segments: Given | None = None, *, loss: str = 'dpo', beta: float = 0.1, label_smoothing: float = 0.0, pairs: int = 1, chunk_bytes: int = 16777216) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
@overload
def preference_loss(h: T, head: T, targets: Like, bias: T | None = None, reference: T | None = None, nll: T | None = None, segments: Like | None = None, *, loss: str = 'dpo', beta: float = 0.1, label_smoothing: float = 0.0, pairs: int = 1, chunk_bytes: int = 16777216) -> tuple[T, T, T, T]: ...

def preference_loss_backward(dloss: Given | None | tuple[Given | None, ...], h: Given, head: Given, targets: Given, bias: Given | None = None, reference: Given | None = None, nll: Given | None = None, segments: Given | None = None, *, loss: str = 'dpo', beta: float = 0.1, label_smoothing: float = 0.0, pairs: int = 1, chunk_bytes: int = 16777216) -> tuple[Float32, Float32, None, Float32 | None, Float32 | None, Float32 | None, None]:
    """Gradients (dh, dhead, None, dbias, dreference, dnll, None) of preference_loss; None for absent inputs.

    Of the summed loss, scaled per shard by dloss (None: 1)."""

@overload
def regularized_loss(h: Array, head: Array, targets: Array, bias: Array | None = None, *, label_smoothing: float = 0.0, z: float = 0.0, by_sample: bool = False, chunk_bytes: int = 16777216) -> tuple[Float64, Float64, Float32, Float64]:
    """Cross entropy with label smoothing and a z-loss: (loss float64 [S], counted, guessed, plain float64 [S]).

    h, head, targets, bias, and the first three results: as in cross_entropy. The probability of a target is
    1 - label_smoothing + label_smoothing / V, the one of any other token label_smoothing / V. z times the square of the
    logarithm of the softmax's denominator is added to each loss. plain is the sum of the cross entropy without both.

    Options:
        label_smoothing: probability that is spread over all tokens, as in PyTorch. Values: a number in [0, 1].
        z: factor of the squared logarithm of the denominator. Values: a number >= 0.
        by_sample: as in cross_entropy, of the cross entropy without both.
        chunk_bytes: bytes of logits that exist at once. Values: at least 1."""
@overload
def regularized_loss(h: Given, head: Given, targets: Given, bias: Given | None = None, *, label_smoothing: float = 0.0, z: float = 0.0, by_sample: bool = False, chunk_bytes: int = 16777216) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
@overload
def regularized_loss(h: T, head: T, targets: Like, bias: T | None = None, *, label_smoothing: float = 0.0, z: float = 0.0, by_sample: bool = False, chunk_bytes: int = 16777216) -> tuple[T, T, T, T]: ...

def regularized_loss_backward(dloss: Given | None | tuple[Given | None, ...], h: Given, head: Given, targets: Given, bias: Given | None = None, *, label_smoothing: float = 0.0, z: float = 0.0, by_sample: bool = False, chunk_bytes: int = 16777216) -> tuple[Float32, Float32, None, Float32 | None]:
    """Gradients (dh, dhead, None, dbias) of regularized_loss; None for absent inputs.

    Of the summed loss, scaled per shard by dloss (None: 1)."""

@overload
def rms_norm(x: Array, gain: Array | None = None, *, eps: float = 1e-06, heads: int = 1, gain_offset: float = 0.0) -> Float32:
    """y = x / sqrt(mean(x^2) + eps) (gain_offset + gain) over the last axis (Zhang and Sennrich 2019).

    x [..., D], gain [D / heads] (qk-norm: heads > 1). A gain of one element applies to all channels.

    Options:
        eps: added to the mean square. Values: a number >= 0.
        heads: equal pieces of the last axis, each normalized alone. Values: at least 1.
        gain_offset: added to the gain; 1: gain is the distance from 1. Values: a finite number."""
@overload
def rms_norm(x: Given, gain: Given | None = None, *, eps: float = 1e-06, heads: int = 1, gain_offset: float = 0.0) -> Tensor: ...
@overload
def rms_norm(x: T, gain: T | None = None, *, eps: float = 1e-06, heads: int = 1, gain_offset: float = 0.0) -> T: ...

def rms_norm_backward(dy: Given, x: Given, gain: Given | None = None, *, eps: float = 1e-06, heads: int = 1, gain_offset: float = 0.0) -> tuple[Float32, Float32 | None]:
    """Gradients (dx, dgain) of rms_norm; None for absent inputs."""

@overload
def rope(x: Array, positions: Array | None = None, *, n_head: int = 0, base: float = 10000.0, scaling: str = 'none', factor: float = 1.0, low_freq: float = 1.0, high_freq: float = 4.0, original: int = 8192, fraction: float = 1.0, max_positions: int = 0) -> Float32:
    """Rotary positions in the half layout (Su et al. 2021).

    x [B, T, H*hd], positions int32 [B, T] or 0..T-1.

    Options:
        n_head: heads of x; 0: the third of its four axes. Values: at least 0.
        base: wavelength of the slowest pair. Values: a number > 0.
        scaling: scaling of the frequencies: none, linear (all divided by factor), llama3 (only the slow ones). Values: none, linear, llama3.
        factor: divisor of scaled frequencies. Values: a number > 0.
        low_freq: llama3: turns within original, below which a frequency is divided by factor. Values: a number > 0.
        high_freq: llama3: turns within original, above which a frequency is kept. Values: a number > 0.
        original: llama3: sequence length of pretraining. Values: at least 1.
        fraction: fraction of each head that is rotated. Values: a number in [0, 1].
        max_positions: largest position + 1; 0: T. Values: 0 to 16777216."""
@overload
def rope(x: Given, positions: Given | None = None, *, n_head: int = 0, base: float = 10000.0, scaling: str = 'none', factor: float = 1.0, low_freq: float = 1.0, high_freq: float = 4.0, original: int = 8192, fraction: float = 1.0, max_positions: int = 0) -> Tensor: ...
@overload
def rope(x: T, positions: Like | None = None, *, n_head: int = 0, base: float = 10000.0, scaling: str = 'none', factor: float = 1.0, low_freq: float = 1.0, high_freq: float = 4.0, original: int = 8192, fraction: float = 1.0, max_positions: int = 0) -> T: ...

def rope_backward(dy: Given, x: Given, positions: Given | None = None, *, n_head: int = 0, base: float = 10000.0, scaling: str = 'none', factor: float = 1.0, low_freq: float = 1.0, high_freq: float = 4.0, original: int = 8192, fraction: float = 1.0, max_positions: int = 0) -> tuple[Float32, None]:
    """Gradients (dx, None) of rope; None for absent inputs."""

@overload
def teacher_loss(h: Array, head: Array, targets: Array, ids: Array, log_probs: Array, bias: Array | None = None, *, weight: float = 0.5, chunk_bytes: int = 16777216) -> tuple[Float64, Float64, Float32, Float32]:
    """(1 - weight) cross entropy + weight KL(teacher || student): (loss float64 [S], counted, guessed, teacher).

    h, head, targets, bias, and the first three results: as in cross_entropy. ids int32 [B, T, K]: the tokens that a teacher
    kept at each target, ascending, K < V. log_probs [B, T, K]: the logarithms of their probabilities. The KL is over these
    tokens and one bucket for all others. teacher float32 [B, 2] has two sums for each sample: the KL in nats, and the
    number of targets at which both models have the same likeliest token.

    Options:
        weight: weight of the KL; the cross entropy has the rest. Values: a number in [0, 1].
        chunk_bytes: bytes of logits that exist at once. Values: at least 1."""
@overload
def teacher_loss(h: Given, head: Given, targets: Given, ids: Given, log_probs: Given, bias: Given | None = None, *, weight: float = 0.5, chunk_bytes: int = 16777216) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
@overload
def teacher_loss(h: T, head: T, targets: Like, ids: Like, log_probs: T, bias: T | None = None, *, weight: float = 0.5, chunk_bytes: int = 16777216) -> tuple[T, T, T, T]: ...

def teacher_loss_backward(dloss: Given | None | tuple[Given | None, ...], h: Given, head: Given, targets: Given, ids: Given, log_probs: Given, bias: Given | None = None, *, weight: float = 0.5, chunk_bytes: int = 16777216) -> tuple[Float32, Float32, None, None, Float32, Float32 | None]:
    """Gradients (dh, dhead, None, None, dlog_probs, dbias) of teacher_loss; None for absent inputs.

    Of the summed loss, scaled per shard by dloss (None: 1)."""

@overload
def adamw(w: Array, gradient: Array, first: Array, second: Array, *, lr: float = 0.001, beta1: float = 0.9, beta2: float = 0.95, eps: float = 1e-08, decay: float = 0.0, step: int = 1) -> tuple[Float32, Float32, Float32]:
    """One update of AdamW (as torch.optim.AdamW): (new w, new first, new second), float32 arrays of one shape.

    Training runs the same kernel over all parameters in one sweep; this op is a single update.

    Options:
        lr: learning rate. Values: a finite number.
        beta1: decay of the first moment. Values: a number in [0, 1).
        beta2: decay of the second moment. Values: a number in [0, 1).
        eps: epsilon in the denominator. Values: a finite number.
        decay: fraction of w that is subtracted: lr weight_decay of torch. Values: a finite number.
        step: number of the update. Values: at least 1."""
@overload
def adamw(w: Given, gradient: Given, first: Given, second: Given, *, lr: float = 0.001, beta1: float = 0.9, beta2: float = 0.95, eps: float = 1e-08, decay: float = 0.0, step: int = 1) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def adamw(w: T, gradient: T, first: T, second: T, *, lr: float = 0.001, beta1: float = 0.9, beta2: float = 0.95, eps: float = 1e-08, decay: float = 0.0, step: int = 1) -> tuple[T, T, T]: ...

def adamw_backward(dw: Given | tuple[Given | None, ...], w: Given, gradient: Given, first: Given, second: Given, *, lr: float = 0.001, beta1: float = 0.9, beta2: float = 0.95, eps: float = 1e-08, decay: float = 0.0, step: int = 1) -> tuple[Float32, Float32, Float32, Float32]:
    """Gradients (dw, dgradient, dfirst, dsecond) of adamw; None for absent inputs.

    cpp/mudd/optim/adamw/adamw.h has the formula. dw: the gradient of the new weights, or a tuple (dw, dfirst,
    dsecond) with those of the new moments."""

@overload
def lion(w: Array, gradient: Array, moment: Array, *, lr: float = 0.0001, beta1: float = 0.9, beta2: float = 0.99, decay: float = 0.0) -> tuple[Float32, Float32]:
    """One update of Lion (Chen et al. 2023): (new w, new moment), float32 arrays of one shape.

    new w = w - lr sign(beta1 moment + (1 - beta1) gradient) - decay w,
    new moment = beta2 moment + (1 - beta2) gradient.
    Training runs the same kernel over all parameters in one sweep; this op is a single update.

    Options:
        lr: learning rate. Values: a finite number.
        beta1: weight of the moment in the sign. Values: a number in [0, 1).
        beta2: decay of the moment. Values: a number in [0, 1).
        decay: fraction of w that is subtracted: lr weight_decay of torch. Values: a finite number."""
@overload
def lion(w: Given, gradient: Given, moment: Given, *, lr: float = 0.0001, beta1: float = 0.9, beta2: float = 0.99, decay: float = 0.0) -> tuple[Tensor, Tensor]: ...
@overload
def lion(w: T, gradient: T, moment: T, *, lr: float = 0.0001, beta1: float = 0.9, beta2: float = 0.99, decay: float = 0.0) -> tuple[T, T]: ...

def lion_backward(dw: Given | tuple[Given | None, ...], w: Given, gradient: Given, moment: Given, *, lr: float = 0.0001, beta1: float = 0.9, beta2: float = 0.99, decay: float = 0.0) -> tuple[Float32, Float32, Float32]:
    """Gradients (dw, dgradient, dmoment) of lion; None for absent inputs.

    ((1 - decay) dw, (1 - beta2) dm, beta2 dm); the sign is flat. dw: the gradient of the new weights, or a pair
    (dw, dm) with that of the new moment."""

@overload
def sgd(w: Array, gradient: Array, moment: Array, *, lr: float = 0.01, momentum: float = 0.9, decay: float = 0.0) -> tuple[Float32, Float32]:
    """One update of SGD with Nesterov momentum (as torch.optim.SGD): (new w, new moment), float32 of one shape.

    new moment = momentum moment + gradient; new w = w - lr (gradient + momentum new moment) - decay w.
    Training runs the same kernel over all parameters in one sweep; this op is a single update.

    Options:
        lr: learning rate. Values: a finite number.
        momentum: decay of the moment. Values: a number in [0, 1).
        decay: fraction of w that is subtracted: lr weight_decay of torch. Values: a finite number."""
@overload
def sgd(w: Given, gradient: Given, moment: Given, *, lr: float = 0.01, momentum: float = 0.9, decay: float = 0.0) -> tuple[Tensor, Tensor]: ...
@overload
def sgd(w: T, gradient: T, moment: T, *, lr: float = 0.01, momentum: float = 0.9, decay: float = 0.0) -> tuple[T, T]: ...

def sgd_backward(dw: Given | tuple[Given | None, ...], w: Given, gradient: Given, moment: Given, *, lr: float = 0.01, momentum: float = 0.9, decay: float = 0.0) -> tuple[Float32, Float32, Float32]:
    """Gradients (dw, dgradient, dmoment) of sgd; None for absent inputs.

    ((1 - decay) dw, dm - lr (1 + momentum) dw, momentum dm - lr momentum^2 dw). dw: the gradient of the new
    weights, or a pair (dw, dm) with that of the new moment."""
