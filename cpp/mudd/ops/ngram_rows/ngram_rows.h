// ngram_rows: y[b,t,:] = sum over the orders o of sign_o(b,t) * table[row_o(b,t),:], one row of a table for each
// n-gram that ends at position t. Feature hashing with signs: Weinberger et al. 2009, arXiv 0902.2206.
//
// Inputs: ids i32 [B, T] (at least 0), table_RD fp32 (weight-like), segments i32 [B, T] (optional), cache fp32 [B,
// 1, Tmax, 1] (optional, contiguous): the ids so far, as numbers; it replaces the ids before the call and gets the
// new ones at cache_length + t. After Tmax ids a single id replaces the oldest one; then Tmax is at least the
// largest order - 1. Output: y [B, T, D].
//
// Tokens of another segment, before the sequence, or up to a token `end` before t (the end of an earlier document)
// count as absent. With x_k = the token at t - k plus 1, or 0 if it is absent, in integers modulo 2^64:
//   h = mix(4 seed + o);  h = mix(h + x_k) for k = o - 1, ..., 0.
//   row = floor((h / 2^32) R / 2^32),   sign = 1 - 2 (h mod 2).
// mix is the finalizer of SplitMix64 (Steele et al. 2014). Rows are added in the order of `orders`.
// Saved: nothing. Backward: dtable[v,:] = sum of sign * dy[b,t,:] over the n-grams with row v, in the order of
// positions and, for one position, of orders (kernels/table_gradient).
#pragma once

#include <cstdint>
#include <span>

#include "mudd/base/kernel_table.h"

namespace mudd {

struct NgramRowsKernels {
  // Write rows [begin, end) of y [*, d]: sums of `orders` rows of the table each, whose ids and signs follow one
  // another.
  void (*fwd)(int64_t begin, int64_t end, int64_t d, int64_t orders, const int32_t* ids, const float* signs,
              const float* table, int64_t table_stride, float* y, int64_t y_stride);
};

MUDD_DECLARE_KERNELS(NgramRowsKernels, ngram_rows_f32)

std::span<const KernelRow<NgramRowsKernels>> ngram_rows_rows();

}  // namespace mudd
