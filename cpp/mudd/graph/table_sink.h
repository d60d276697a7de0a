// TableSink: writes the gradient of a table to a GradSink. A node fills the ids of the rows that it looked up, in
// the order of the rows of dy, and calls write().
#pragma once

#include <cstddef>
#include <cstdint>

#include "mudd/graph/node.h"

namespace mudd {

class TableSink {
 public:
  // scratch: cache-line aligned, of bytes(). look_ups: of a run, `per_row` for each row of dy. is_signed: each has
  // a sign, 1 or -1.
  TableSink(std::byte* scratch, int64_t look_ups, int shards, int64_t per_row = 1, bool is_signed = false);
  // The size does not depend on the number of rows of the table, which may be much larger.
  static int64_t bytes(int64_t look_ups, int shards, int64_t per_row = 1, bool is_signed = false) {
    return TableSink(nullptr, look_ups, shards, per_row, is_signed).bytes_;
  }

  int32_t* ids() const { return ids_; }    // [look_ups]
  float* signs() const { return signs_; }  // [look_ups], or null

  // Write table [rows, width]: scale * the sum of sign * dy over the look-ups of a row. The order of the sums is
  // in kernels/table_gradient. Changes the ids.
  void write(const Tensor& dy, int64_t table_rows, int64_t width, float scale, const Shards& shards,
             const GradSink& sink);

 private:
  void sort_by_digit(int shift);
  int64_t sort(int64_t table_rows);
  void refer_to_rows();

  int64_t look_ups_, per_row_, bytes_;
  int64_t* cuts_;  // of the shards
  int32_t *ids_, *order_, *spare_, *found_, *begin_, *ends_;
  float *signs_ = nullptr, *sorted_signs_ = nullptr;
};

}  // namespace mudd
