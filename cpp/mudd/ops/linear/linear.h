// linear: y = act(x w + bias) + residual, all in the epilogue of one GEMM.
//
// Inputs: x_RK fp32 (any row stride), w [K, N] (option transposed: [N, K], y = x w^T as in logits = h E^T),
// bias_N (optional), residual_RN (optional). Output: y_RN; it may take over the residual's memory.
// Saved: the pre-activation x w + bias, only if an activation needs it (rounded in bf16, and the activation
// then uses the rounded value). Without a residual, backward recomputes y from it; in fp32 the slope then
// replaces the pre-activation, because both need the same exponential.
// Backward, with dpre = dy act'(pre):
//   dx = dpre w^T,   dw = x^T dpre,   dbias = sum over rows of dpre,   dresidual = dy (the executor passes it).
// Sums over rows run in the order of contracts 2; dx of a row depends on that row only.
#pragma once

#include <cstdint>

#include "mudd/base/activation.h"
#include "mudd/base/kernel_table.h"

namespace mudd {

class Inference;
struct TensorSpec;

struct LinearKernels {
  // Compute rows [begin, end) of dpre = dy * act'(pre); pre and dpre may be null for activation none (dpre is
  // dy). dbias may be null; else it receives this block's sum over its rows, in row order (set, not added).
  void (*bwd)(int64_t begin, int64_t end, int64_t n, Activation activation, const float* pre, bool pre_is_slope,
              const float* dy, int64_t dy_stride, float* dpre, float* dbias);  // pre and dpre are contiguous
  // Compute n elements y = act(pre), slope = act'(pre), which may be pre itself.
  void (*remake)(int64_t n, Activation activation, const float* pre, float* y, float* slope);
};

MUDD_DECLARE_KERNELS(LinearKernels, linear_f32)

std::span<const KernelRow<LinearKernels>> linear_rows();

// Throw if an optional bias [N] or residual, given by input index, does not fit the output y [..., N].
void check_added(const Inference& io, const char* op, const TensorSpec& y, int bias, int residual);

}  // namespace mudd
