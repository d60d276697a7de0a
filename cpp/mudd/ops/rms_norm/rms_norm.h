// rms_norm: y[r,:] = x[r,:] * inv[r] * (gain_offset + gain),   inv[r] = (mean_d x[r,d]^2 + eps)^(-1/2).
// With option heads = H > 1 each of the H equal pieces of a row is normalised separately (qk-norm), gain [D /
// H].
// Zhang and Sennrich 2019; eps is inside the root (docs/maths/transformer.md, 2.1).
//
// Inputs: x_RD fp32 (any row stride), gain_D or one value for all channels, fp32 (optional: all ones).
// Output: y_RD.
// Saved: inv_R. Backward, with u = dy * (gain_offset + gain) and n = x * inv:
//   dx = inv * (u - n * mean_d(u n)),   dgain = sum over rows of dy * n (fixed order, shards tree).
// dx may share memory with dy.
#pragma once

#include <cstdint>

#include "mudd/base/kernel_table.h"

namespace mudd {

struct RmsNormKernels {
  // Process pieces [begin, end) of width d: piece i is head i % heads of row i / heads; inv is indexed by
  // piece. gain may be null.
  void (*fwd)(int64_t begin, int64_t end, int64_t heads, int64_t d, const float* x, int64_t x_stride,
              const float* gain, float eps, float* y, int64_t y_stride, float* inv);
  // Process pieces [begin, end). dx may be null: then only dgain is computed. accumulate: add to dx. dgain may be
  // null; else it is overwritten with the sum over these pieces, in their order.
  void (*bwd)(int64_t begin, int64_t end, int64_t heads, int64_t d, const float* x, int64_t x_stride,
              const float* gain, const float* inv, const float* dy, int64_t dy_stride, float* dx,
              int64_t dx_stride, bool accumulate, float* dgain);
};

MUDD_DECLARE_KERNELS(RmsNormKernels, rms_norm_f32)

std::span<const KernelRow<RmsNormKernels>> rms_norm_rows();

}  // namespace mudd
