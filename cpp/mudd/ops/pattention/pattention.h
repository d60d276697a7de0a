// pattention: token-parameter attention of TokenFormer (Wang et al. 2024, arXiv 2410.23168, section 3.2), for one
// or several projections of the same x:
//   A = x K^T + key_bias,   S = scale_factor * Theta(A),   y = S W + value_bias  (+ residual, one projection only)
// with key tokens K [n, d_in] and value tokens W [n, d_out]. Theta is applied to a row a of A; tau =
// sqrt(zoom), or sqrt(n) of this projection if zoom = 0; r is the l2 norm of the row:
//   l2_norm_gelu     gelu(tau a / (|a| + eps))          gelu_l2_norm     tau g / (|g| + eps),  g = gelu(a)
//   l2_norm          tau a / (|a| + eps)                softmax          n softmax(a)
//   gelu             gelu(a)                            gelu_layer_norm  (g - mean g) / sqrt(var g + eps)
// A row of zero norm, or of zero variance without eps, gives S = 0 and no gradient.
//
// Inputs: x [..., d_in] fp32 (any row stride), key [n, d_in], value [n, d_out], key_bias [n] (optional),
// value_bias [d_out] (optional), residual (optional, like y), then key, value, key_bias, value_bias of further
// projections. Outputs: y of each projection. drop_path: if gradients are requested, whole samples of y (not of
// the residual) are dropped and the others scaled by 1 / (1 - drop_path), drawn by (seed, purpose, step,
// sample).
// Saved: A of each projection (keep_scores) and two values a row: the norm and 0, or max and 1/sum, or mean and
// 1/deviation. Backward (docs/maths/tokenformer.md, 7), dS = scale_factor dy W^T:
//   dW = S^T dy,   dA = the slope of Theta times dS,   dK = dA^T x,   dx = sum over projections of dA K
//   dkey_bias = column sums of dA,   dvalue_bias = of dy,   dresidual = dy (the executor passes it).
// Rows are processed in blocks: scores, Theta and the values' GEMM of a block while it is in cache. A row
// depends on no other row; sums over tokens use the tree over shards (weight_gradient, RowSums).
#pragma once

#include <cstdint>

#include "mudd/base/activation.h"
#include "mudd/base/kernel_table.h"

namespace mudd {

enum class SlotNorm : uint8_t { l2_norm_gelu, gelu_l2_norm, l2_norm, softmax, gelu, gelu_layer_norm };

struct Theta {
  SlotNorm norm = SlotNorm::l2_norm_gelu;
  Activation gelu = Activation::gelu_tanh;
  float tau = 1, eps = 0, scale = 1;
};

struct PattentionKernels {
  // Compute s = scale * factors[row] * Theta(a), row by row of n; factors may be null (ones), s may be a. stats
  // + 2 row receives the row statistics for backward.
  void (*fwd)(int64_t rows, int64_t n, const Theta& theta, const float* a, int64_t a_stride, const float* factors,
              float* s, int64_t s_stride, float* stats);
  // Replace ds (the gradient of s) by da, the gradient of a. s may be null, else it receives s again.
  void (*bwd)(int64_t rows, int64_t n, const Theta& theta, const float* a, int64_t a_stride, const float* factors,
              const float* stats, float* ds, int64_t ds_stride, float* s, int64_t s_stride);
  // y += factors[row] * bias (factors may be null).
  void (*add_bias)(int64_t rows, int64_t width, const float* bias, const float* factors, float* y, int64_t stride);
  // sum = sum over rows, in order, of factors[row] * x (set, not added).
  void (*sum_rows)(int64_t rows, int64_t width, const float* x, int64_t stride, const float* factors, float* sum);
};

MUDD_DECLARE_KERNELS(PattentionKernels, pattention_f32)

std::span<const KernelRow<PattentionKernels>> pattention_rows();

}  // namespace mudd
