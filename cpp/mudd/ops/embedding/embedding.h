// embedding: y[r,:] = scale * table[ids[r],:] (+ residual[r,:]).
//
// Inputs: ids i32 [B, T] (every id in [0, V), else an error that names id and position), table_VD fp32
// (weight-like), residual fp32 [B, T, D] (optional). Output: y [B, T, D].
// Option positions=true: no ids; the id of row t of a sample is t + cache_length (learned positions); the
// shape comes from the residual. Option sinusoids=N: no table; its N rows are sines and cosines (Vaswani et al.
// 2017), as wide as the residual.
// Saved: nothing. Backward: the gradient of the residual is dy itself (passes_gradient);
//   dtable[v,:] = scale * sum of dy[r,:] over the rows with ids[r] = v, see kernels/table_gradient.
#pragma once

#include <cstdint>

#include "mudd/base/kernel_table.h"

namespace mudd {

struct EmbeddingKernels {
  // Look up rows [begin, end); residual may be null, and may be y itself.
  void (*fwd)(int64_t begin, int64_t end, int64_t d, const int32_t* ids, const float* table, int64_t table_stride,
              float scale, const float* residual, int64_t residual_stride, float* y, int64_t y_stride);
};

MUDD_DECLARE_KERNELS(EmbeddingKernels, embedding_f32)

std::span<const KernelRow<EmbeddingKernels>> embedding_rows();

}  // namespace mudd
