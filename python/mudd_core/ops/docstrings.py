"""Formula and inputs of each op. Options and their values come from the declaration in the core.

A paragraph that begins with `Backward: ` goes into the help of `<op>_backward`.
"""

DOCSTRINGS = {
    "activation": """y = act(x), element by element.""",
    "add": """y = a + b, shapes equal.""",
    "dropout": """y = residual + m x / (1 - rate) (Srivastava et al. 2014), m one with probability 1 - rate, else zero.

    x and residual [B, T, D]. Only where a gradient of x is wanted; elsewhere y = residual + x. The draws depend on
    seed, `purpose`, step, sample, position and channel alone.

Backward: The draws are those of the forward pass.""",
    "glu": """y = act(gate) * up (Shazeer 2020). Shapes equal.""",
    "rms_norm": """y = x / sqrt(mean(x^2) + eps) * gain over the last axis (Zhang and Sennrich 2019).

    x [..., D], gain [D / heads] (qk-norm: heads > 1). A gain of one number is for all channels.""",
    "layer_norm": """y = scale ((x - mean) / sqrt(var + eps) (gain_offset + gain) + bias) over the last axis.

    Ba et al. 2016. x [..., D], gain and bias [D] (absent: ones and zeros).""",
    "linear": """y = act(x w + bias) + residual.

    x [..., K], w [K, N] (transposed: [N, K]), bias [N], residual like y.""",
    "cross_entropy": """Unembedding, softmax and loss in one: (loss float64 [S], counted float64 [S], guessed).

    h [B, T, D], head [V, D], targets int32 [B, T]; a negative target is ignored. bias [V] is added to the logits. loss
    is the sum of nats of each shard, counted the number of its targets. All logits never exist at once. guessed
    float32 [B, 2]: the targets of each sample that have the largest logit (the first of equal ones), and their
    fraction of its counted targets.

Backward: Of the summed loss, scaled per shard by dloss (None: 1).""",
    "embedding": """y = table[ids] (+ residual). ids int32 [B, T], table [V, D].

    positions: the row of a token is its position t. sinusoids: row p holds sin(p w) then cos(p w), w from 1 down to
    1/10000 in equal ratios (Vaswani et al. 2017), as wide as the residual.""",
    "rope": """Rotary positions in the half layout (Su et al. 2021).

    x [B, T, H*hd], positions int32 [B, T] or 0..T-1.""",
    "attention": """softmax(scale q k^T + mask) v by tiles, never T x T (Dao et al. 2022).

    q [B, T, H*hd], k and v [B, T, G*hd]; head h reads group h // (H / G). segments and key_mask int32 [B, T]: a
    query sees keys of its own segment whose mask is 1, and none after itself if causal. A row that sees nothing
    gives zeros. k_cache, v_cache [B, G, Tmax, hd]: decoding; the keys and values of this call are stored after the
    cached ones (scopes.cached(length) says how many those are), and all of them are seen. dropout: where gradients are
    wanted, a probability is zero with this chance, else divided by 1 - dropout.
    activation of the scores s: softmax; sqrelu relu(s)^2 / divisor; elu (elu(s) + 1) / divisor; norm_sqrelu and
    norm_elu the same over (eps + their sum over the visible keys) (docs/maths/mup.md, 1.2).""",
    "pattention": """y = scale_factor Theta(x key^T + key_bias) value + value_bias.

    Token-parameter attention (Wang et al. 2024).
    x [..., D], key [n, D], value [n, D2], key_bias [n], value_bias [D2], residual like y (added). more: key,
    value, key_bias, value_bias of further projections of the same x, None where absent; the result is then a tuple.
    norm, with tau = sqrt(zoom or n) and |.| the norm of a row: l2_norm_gelu = gelu(tau a / (|a| + eps)), gelu_l2_norm =
    tau gelu(a) / (|gelu(a)| + eps), l2_norm = tau a / (|a| + eps), softmax = n softmax(a), gelu, gelu_layer_norm
    (deviation with eps). A row of zero norm gives zeros and no gradient. drop_path: where gradients are wanted, whole
    samples of y are dropped with this probability, the others divided by 1 - drop_path.

Backward: dy is one array, or a tuple with one for each projection.""",
    "depth_mix": """C streams as weighted sums of l earlier states, the weights made per token.

    Xiao et al. 2025, MUDDFormer.
    states: l arrays [..., D]; X = newest where given, else the last of them. With w1 [D, K] and w2 [K, C*l] the
    weights are A = act(rms(X; generator_gain) w1) w2 + bias, column c*l + j for stream c and state j; without, A =
    bias [C, l]. Stream c = sum_j A[c, j] states[j] (+ X if direct), then rms-normalized with gain_c [D] where given
    (leading streams only). C is 1 to 4; returns one array for C = 1, else a tuple.

Backward: dy is the gradient of the stream, or a tuple, None for zero.""",
    "moe_route": """The top-k router of a mixture of E experts: (gates, experts int32, both [B, T, k], metrics).

    Jiang et al. 2024.
    p = softmax(x w); the k largest (ties: the lower expert) share a gate of 1 in proportion to p. x [B, T, D], w
    [D, E]. capacity_factor > 0: an expert takes at most floor(T k factor / E) slots of a sequence (or the ceiling, of
    a shard); of the others the expert becomes -1 and the gate 0. jitter e: where gradients are wanted the router sees
    x times uniform numbers of [1 - e, 1 + e], drawn by seed, step, sample and layer. metrics float32 [B, 4 E + 3],
    sums of each sample: slots routed to e before dropping (E numbers), probabilities (E), slots that e works on (E),
    slots dropped at e (E), squared log-sum-exp, tokens, entropy in nats. Tokens of segment 0 or mask 0 (int32 [B, T])
    are padding: routed and dropped like others, but only the slots worked on and dropped count them.

Backward: The gradient is that of the gates, or (of the gates, None, of the metrics). Of the metrics only the sums of
probabilities and of the squared log-sum-exp have one.""",
    "grouped_gemm": """y = residual + sum over a token's slots of gates (act(x gate_e) * (x up_e)) down_e.

    All experts in one call.
    x [B, T, D], gates and experts (int32, -1 = none) [B, T, k] as moe_route gives them, gate and up [E, D, F], down
    [E, F, D]. Tokens are sorted by expert inside; experts may be empty or hold all of them.""",
    "moe_balance": """Auxiliary losses of a mixture, float64 [S] each: (n (balance A + z Z), n A, n Z).

    n: counted targets of a shard.
    metrics: those of moe_route, one per layer. form: pooled (one product of averages over all layers, as transformers)
    or per_layer (a sum of per-layer losses, as Megatron-LM).
    Z = sum over layers of the mean squared log-sum-exp of the router's logits (Zoph et al. 2022).

Backward: Of the first output, scaled per shard by dloss (None: 1).""",
    "adamw": """One update of AdamW (as torch.optim.AdamW): (new w, new first, new second), float32 arrays of one shape.

    Training runs the same kernel over all parameters in one sweep; this is one update alone.

Backward: cpp/mudd/optim/adamw/adamw.h has the formula. dw: the gradient of the new weights, or a tuple (dw, dfirst,
dsecond) with those of the new moments.""",
    "lion": """One update of Lion (Chen et al. 2023): (new w, new moment), float32 arrays of one shape.

    new w = w - lr sign(beta1 moment + (1 - beta1) gradient) - decay w,
    new moment = beta2 moment + (1 - beta2) gradient.
    Training runs the same kernel over all parameters in one sweep; this is one update alone.

Backward: ((1 - decay) dw, (1 - beta2) dm, beta2 dm); the sign is flat. dw: the gradient of the new weights, or a pair
(dw, dm) with that of the new moment.""",
    "sgd": """One update of SGD with Nesterov momentum (as torch.optim.SGD): (new w, new moment), float32 of one shape.

    new moment = momentum moment + gradient; new w = w - lr (gradient + momentum new moment) - decay w.
    Training runs the same kernel over all parameters in one sweep; this is one update alone.

Backward: ((1 - decay) dw, dm - lr (1 + momentum) dw, momentum dm - lr momentum^2 dw). dw: the gradient of the new
weights, or a pair (dw, dm) with that of the new moment.""",
}
