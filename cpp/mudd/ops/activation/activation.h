// activation: y[r,c] = A(x[r,c]) with A one of base/simd/activations.h (formulas and sources) or of pointwise.h.
//
// Input: x_RC fp32 (any row stride). Output: y_RC. Saved: nothing; backward reads x again:
//   dx = dy A'(x).
// y may share memory with x, dx with dy.
#pragma once

#include <cstdint>

#include "mudd/base/activation.h"
#include "mudd/base/kernel_table.h"
#include "mudd/ops/activation/pointwise.h"

namespace mudd {

struct ActivationKernels {
  // Process rows [begin, end) of `cols` columns.
  void (*fwd)(int64_t begin, int64_t end, int64_t cols, Activation kind, const float* x, int64_t x_stride,
              float* y, int64_t y_stride);
  // accumulate adds to dx, which then must not be dy.
  void (*bwd)(int64_t begin, int64_t end, int64_t cols, Activation kind, const float* x, int64_t x_stride,
              const float* dy, int64_t dy_stride, float* dx, int64_t dx_stride, bool accumulate);
  // The same for the kinds of pointwise.h.
  void (*pointwise_fwd)(int64_t begin, int64_t end, int64_t cols, Pointwise kind, const float* x, int64_t x_stride,
                        float* y, int64_t y_stride);
  void (*pointwise_bwd)(int64_t begin, int64_t end, int64_t cols, Pointwise kind, const float* x, int64_t x_stride,
                        const float* dy, int64_t dy_stride, float* dx, int64_t dx_stride, bool accumulate);
};

MUDD_DECLARE_KERNELS(ActivationKernels, activation_f32)

std::span<const KernelRow<ActivationKernels>> activation_rows();

}  // namespace mudd
