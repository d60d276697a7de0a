// ngram_ids: y[b,t] in [0, rows) is a hash of the last `order` tokens of position t, for rows of a table.
//
// Inputs: ids i32 [B, T] (at least 0), segments i32 [B, T] (optional). Output: y i32 [B, T], without a gradient.
// Tokens of another segment, before the sequence, or up to a token `end` before t (the end of an earlier
// document) count as absent. With x_k = the token at t - k plus 1, or 0 if it is absent, in integers modulo 2^64:
//   h = mix(4 seed + order);  h = mix(h + x_k) for k = order - 1, ..., 0;  y = floor((h / 2^32) rows / 2^32)
// mix is the finalizer of SplitMix64 (Steele et al. 2014). The same integers result on every level: there is no
// kernel. The op refuses a step of decoding with a KV cache, because it does not keep the earlier tokens.
#pragma once

namespace mudd {}
