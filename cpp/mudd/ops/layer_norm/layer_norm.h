// layer_norm: y[r,:] = scale * ((x[r,:] - mean[r]) * inv[r] * (gain_offset + gain) + bias), mean[r] = mean_d
// x[r,d], inv[r] = (mean_d (x[r,d] - mean[r])^2 + eps)^(-1/2).   Ba, Kiros and Hinton 2016, biased variance.
// The variance is a second pass over the row (in cache), so nothing cancels.
//
// Inputs: x_RD fp32 (any row stride), gain_D fp32 (optional: all ones), bias_D fp32 (optional: none).
// Output: y_RD. Saved: stats_R2, mean and inv of each row.
// Backward, with dy multiplied by scale, u = dy * (gain_offset + gain) and n = (x - mean) * inv:
//   dx = inv * (u - mean_d(u) - n * mean_d(u n)),   dgain = sum over rows of dy * n,   dbias = of dy
// (fixed order, shards tree; row_sums.h). dx may share memory with dy.
#pragma once

#include <cstdint>

#include "mudd/base/kernel_table.h"

namespace mudd {

struct LayerNormOptions {
  float eps = 1e-5f, gain_offset = 0, scale = 1;
};

struct LayerNormKernels {
  // Rows [begin, end). gain and bias may be null. stats + 2 r receives mean and inv.
  void (*fwd)(int64_t begin, int64_t end, int64_t d, const float* x, int64_t x_stride, const float* gain,
              const float* bias, const LayerNormOptions& options, float* y, int64_t y_stride, float* stats);
  // Rows [begin, end). dx may be null; accumulate adds to dx, which then must not be dy. dgain and dbias may
  // be null, else they receive this block's sums over its rows, in row order (set, not added).
  void (*bwd)(int64_t begin, int64_t end, int64_t d, const float* x, int64_t x_stride, const float* gain,
              const LayerNormOptions& options, const float* stats, const float* dy, int64_t dy_stride, float* dx,
              int64_t dx_stride, bool accumulate, float* dgain, float* dbias);
};

MUDD_DECLARE_KERNELS(LayerNormKernels, layer_norm_f32)

std::span<const KernelRow<LayerNormKernels>> layer_norm_rows();

}  // namespace mudd
