// Refreshes the pieces of packed panels that a block of a matrix owns.
#pragma once

#include <cstdint>

#include "mudd/base/types.h"

namespace mudd {

// A matrix W [rows, cols], contiguous, and its panels (gemm.h) for `compute`; null: none kept.
struct PackedMatrix {
  const float* w = nullptr;
  int64_t rows = 0, cols = 0;
  void* plain = nullptr;       // of W
  void* transposed = nullptr;  // of W^T
  DType compute = DType::f32;
};

// Rows [r, r_end) x columns [c, c_end); borders inside of the matrix are multiples of the panel width and of the
// depth unit.
void pack_block(const PackedMatrix& matrix, int64_t r, int64_t r_end, int64_t c, int64_t c_end);

}  // namespace mudd
