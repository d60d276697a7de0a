// add: y[r,c] = a[r,c] + b[r,c], the residual stream.
//
// Inputs: a_RC, b_RC fp32 of one shape (any row stride). Output: y_RC. Saved: nothing.
// Backward: da = dy is passed on by the executor (no copy), db = dy is set or added here.
// y may share memory with a.
#pragma once

#include <cstdint>

#include "mudd/base/kernel_table.h"

namespace mudd {

struct AddKernels {
  // y = a + b on rows [begin, end); y may be a or b.
  void (*add)(int64_t begin, int64_t end, int64_t cols, const float* a, int64_t a_stride, const float* b,
              int64_t b_stride, float* y, int64_t y_stride);
};

MUDD_DECLARE_KERNELS(AddKernels, add_f32)

std::span<const KernelRow<AddKernels>> add_rows();

}  // namespace mudd
