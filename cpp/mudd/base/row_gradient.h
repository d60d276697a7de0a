// The gradient of a table (embeddings) of which a step reads few rows: it stores these rows; all others are
// zero.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace mudd {

struct RowGradient {
  int64_t table_rows = 0, width = 0;
  int64_t capacity = 0;      // rows that fit `values`
  float* values = nullptr;   // [count, width], in the order of their first occurrence
  int32_t* place = nullptr;  // [table_rows]: the row of values, or -1: zeros
  int64_t count = 0;

  const float* row(int64_t r) const { return place[r] < 0 ? nullptr : values + place[r] * width; }
  // Copy elements [begin, begin + n) of the whole table, row by row, zeros included.
  void copy(int64_t begin, int64_t n, float* to) const;
};

// The sum of one table's gradients over processes, in the order of base/shard_tree.h. Processes without a row
// are skipped in its sum: sums are never -0, so adding their zeros would change no bit.
class RowTotal {
 public:
  RowTotal() = default;
  explicit RowTotal(std::vector<RowGradient> leaves) : leaves_(std::move(leaves)) {}
  // The same as RowGradient::copy.
  void copy(int64_t begin, int64_t n, float* to) const;

 private:
  std::vector<RowGradient> leaves_;  // one at least
};

}  // namespace mudd
