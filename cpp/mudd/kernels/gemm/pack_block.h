// Repacks the pieces of packed panels for a block of a matrix.
#pragma once

#include <cstdint>

#include "mudd/base/types.h"

namespace mudd {

// A contiguous matrix W [rows, cols] and its panels (gemm.h) for `compute`; null: not kept.
struct PackedMatrix {
  const float* w = nullptr;
  int64_t rows = 0, cols = 0;
  void* plain = nullptr;       // of W
  void* transposed = nullptr;  // of W^T
  DType compute = DType::f32;
};

// Repack rows [r, r_end) x columns [c, c_end); inner borders are multiples of the panel width and of the depth
// unit.
void pack_block(const PackedMatrix& matrix, int64_t r, int64_t r_end, int64_t c, int64_t c_end);

}  // namespace mudd
