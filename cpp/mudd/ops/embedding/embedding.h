// embedding: y[r,:] = scale * table[ids[r],:] (+ residual[r,:]).
//
// Inputs: ids i32 [B, T] (every id in [0, V), else an error that names id and position), table_VD fp32
// (weight-like), residual fp32 [B, T, D] (optional). Output: y [B, T, D].
// Option positions=true: no ids; the id of row t of a sample is t + cache_length (learned positions); the
// shape comes from the residual. Option sinusoids=N: no table; its N rows are sines and cosines (Vaswani et al.
// 2017), as wide as the residual.
// Saved: nothing. Backward: the gradient of the residual is dy itself (passes_gradient);
//   dtable[v,:] = scale * sum of dy[r,:] over the rows with ids[r] = v. A shard is summed in row order and scaled,
//   then come the balanced tree over shards and the adds of the sink. A shard without the id adds +0; sums are
//   never -0, so skipping such shards changes no bit, and any split of the shards into runs has the same result. A
//   sink with a row list gets the rows of the ids that occur, and of the adds.
#pragma once

#include <cstdint>

#include "mudd/base/kernel_table.h"

namespace mudd {

// Rows sorted by (id, row): order[begin[k] .. begin[k+1]) are the rows of found[k], the k-th id that occurs.
struct EmbeddingGrad {
  const float* dy = nullptr;
  int64_t dy_stride = 0;
  const int32_t* order = nullptr;
  const int32_t *found = nullptr, *begin = nullptr;  // [n_found], ascending, and [n_found + 1]
  int64_t n_found = 0;
  const int64_t* cuts = nullptr;  // shards + 1 row indices
  int shards = 0;
  int64_t width = 0;  // D, also the row stride of out and adds
  float* out = nullptr;
  const float* const* add = nullptr;
  int n_add = 0;
  const int32_t* out_ids = nullptr;  // of the rows of out; null: out is a whole table
  // 1 + the rows of the adds by id, 0: none; null: row `id`.
  const int32_t* const* add_place = nullptr;
  const int64_t* add_count = nullptr;  // rows of an add; later ones are new in out, which is the same memory
  float scale = 1;                     // factor of the sum of dy in a shard
};

constexpr int64_t kEmbeddingColumns = 256;  // columns of one task of the gradient
constexpr int kMaxEmbeddingAdds = 16;       // of a GradSink

struct EmbeddingKernels {
  // Look up rows [begin, end); residual may be null, and may be y itself.
  void (*fwd)(int64_t begin, int64_t end, int64_t d, const int32_t* ids, const float* table, int64_t table_stride,
              float scale, const float* residual, int64_t residual_stride, float* y, int64_t y_stride);
  // Write rows [begin, end) of out, columns [column, column + kEmbeddingColumns) within the width.
  void (*bwd)(const EmbeddingGrad& g, int64_t begin, int64_t end, int64_t column);
};

MUDD_DECLARE_KERNELS(EmbeddingKernels, embedding_f32)

std::span<const KernelRow<EmbeddingKernels>> embedding_rows();

}  // namespace mudd
