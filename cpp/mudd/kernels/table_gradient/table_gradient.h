// table_gradient: the gradient of a table [V, D] whose rows were looked up, by sums of rows of dy.
//
//   dtable[v,:] = scale * sum of sign * dy[r,:] over the look-ups (r, sign) of row v.
// A shard is summed in the order of its look-ups and scaled, then come the balanced tree over shards and the adds
// of the sink. A shard without a look-up of the row adds +0; sums are never -0, so skipping such shards changes no
// bit, and any split of the shards into runs has the same result. A sink with a row list gets the rows that occur,
// and the rows of the adds. graph/table_sink.h fills the struct.
#pragma once

#include <cstdint>
#include <span>

#include "mudd/base/kernel_table.h"

namespace mudd {

// Look-ups sorted by (row of the table, place). found[k] is the k-th row of the table that occurs; its rows of dy
// are order[i], i from begin[k] to begin[k+1] - 1.
struct TableGradient {
  const float* dy = nullptr;
  int64_t dy_stride = 0;
  const int32_t* order = nullptr;
  const float* signs = nullptr;                      // 1 or -1 for each of `order`; null: all are 1
  const int32_t *found = nullptr, *begin = nullptr;  // [n_found], ascending, and [n_found + 1]
  int64_t n_found = 0;
  const int64_t* cuts = nullptr;  // shards + 1 rows of dy
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

constexpr int64_t kTableColumns = 256;  // columns of one task
constexpr int kMaxTableAdds = 16;       // of a GradSink

struct TableGradientKernels {
  // Write rows [begin, end) of out, columns [column, column + kTableColumns) within the width.
  void (*write)(const TableGradient& g, int64_t begin, int64_t end, int64_t column);
};

MUDD_DECLARE_KERNELS(TableGradientKernels, table_gradient_f32)

std::span<const KernelRow<TableGradientKernels>> table_gradient_rows();

}  // namespace mudd
