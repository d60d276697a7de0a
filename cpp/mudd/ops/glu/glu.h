// glu: y[r,f] = A(gate[r,f]) * up[r,f], the gated unit of Shazeer 2020 (silu: SwiGLU, gelu: GEGLU, ...).
// Formulas of A: base/simd/activations.h.
//
// Inputs: gate_RF, up_RF fp32 (any row stride: two halves of one slab are fine). Output: y_RF.
// Saved: nothing; backward reads gate and up again:
//   dgate = dy * up * A'(gate),   dup = dy * A(gate).
// y may share memory with gate, dgate with dy.
#pragma once

#include <cstdint>

#include "mudd/base/activation.h"
#include "mudd/base/kernel_table.h"

namespace mudd {

// A gradient; null data if not requested; accumulate adds instead of setting.
struct GluGradient {
  float* data;
  int64_t stride;
  bool accumulate;
};

struct GluKernels {
  // Process rows [begin, end) of `cols` columns.
  void (*fwd)(int64_t begin, int64_t end, int64_t cols, Activation kind, const float* gate, int64_t gate_stride,
              const float* up, int64_t up_stride, float* y, int64_t y_stride);
  void (*bwd)(int64_t begin, int64_t end, int64_t cols, Activation kind, const float* gate, int64_t gate_stride,
              const float* up, int64_t up_stride, const float* dy, int64_t dy_stride, GluGradient dgate,
              GluGradient dup);
};

MUDD_DECLARE_KERNELS(GluKernels, glu_f32)

std::span<const KernelRow<GluKernels>> glu_rows();

}  // namespace mudd
