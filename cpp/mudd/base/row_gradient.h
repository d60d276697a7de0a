// The gradient of a table (embeddings) of which a step reads few rows: only those are kept, all others are zeros.
#pragma once

#include <cstdint>

namespace mudd {

struct RowGradient {
  int64_t table_rows = 0, width = 0;
  int64_t capacity = 0;      // rows that `values` has room for
  float* values = nullptr;   // [count, width], in the order in which rows were first met
  int32_t* place = nullptr;  // [table_rows]: the row of values, or -1: zeros
  int64_t count = 0;

  // Numbers [begin, begin + n) of the whole table, row by row, zeros included.
  void copy(int64_t begin, int64_t n, float* to) const;
};

}  // namespace mudd
