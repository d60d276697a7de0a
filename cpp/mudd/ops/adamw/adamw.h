// adamw: the update of Loshchilov and Hutter 2019 (as torch.optim.AdamW), clipping and repacking in one sweep.
// No node: the training step runs it over all parameters at once.
//
// Per element, in exactly this order of fp32 roundings (fma is one rounding; two at the portable level):
//   g = (((g0 + g1) + g2) + g3) * grad_scale            uses of a tied parameter in order
//   m = fma(1 - beta1, g, beta1 * m)
//   v = fma((1 - beta2) * g, g, beta2 * v)
//   w = fma(-decay, w, w)
//   w = fma(-(lr / bias_correction1), m / fma(sqrt(v), 1 / sqrt(bias_correction2), eps), w)
// The scalars 1 - beta, lr / bias_correction1 and 1 / sqrt(bias_correction2) are formed in double, then rounded.
// Memory: reads w, m, v, g and writes w, m, v and the packed copies once each.
#pragma once

#include <cstdint>

#include "mudd/base/kernel_table.h"

namespace mudd {

constexpr int kMaxGradientUses = 4;

// A parameter as a stored matrix [rows, cols], contiguous ([1, n] for vectors).
struct AdamwParameter {
  int64_t rows = 0, cols = 0;
  float* w = nullptr;
  const float* grads[kMaxGradientUses] = {};  // planes added in order; n_grads of them
  int n_grads = 0;
  float *m = nullptr, *v = nullptr;
  float* packed_plain = nullptr;       // panels of W (see gemm.h), refreshed from the new w; null: none kept
  float* packed_transposed = nullptr;  // panels of W^T
  double lr = 0;                       // learning rate times the parameter's lr_scale
  double decay = 0;        // share of w taken away: lr * weight_decay (coupled) or weight_decay (independent)
  double eps = 1e-8;       // eps times the parameter's eps_scale
  int64_t first_task = 0;  // written by adamw_step
};

struct AdamwScalars {
  double beta1 = 0.9, beta2 = 0.95;
  double bias_correction1 = 1, bias_correction2 = 1;  // bias_correction(beta, t)
  double grad_scale = 1;                              // clipping and one over the loss denominator
};

// 1 - beta^t for the t-th update, t from 1, without libm.
double bias_correction(double beta, int64_t t);

// Updates every parameter. Bits do not depend on the thread count. Allocates nothing.
void adamw_step(std::span<AdamwParameter> parameters, const AdamwScalars& scalars);

// The rounded scalars of one parameter.
struct AdamwFactors {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, decay, step_size, root_scale, eps;
};

struct AdamwKernels {
  // n contiguous elements.
  void (*update)(int64_t n, float* w, float* m, float* v, const float* const* grads, int n_grads,
                 const AdamwFactors& factors);
};

#define MUDD_KERNEL(name, level)  \
  namespace level {               \
  extern const AdamwKernels name; \
  }
#include "mudd/ops/adamw/kernels.inc"
#undef MUDD_KERNEL

std::span<const KernelRow<AdamwKernels>> adamw_rows();

AdamwFactors adamw_factors(const AdamwParameter& parameter, const AdamwScalars& scalars);

}  // namespace mudd
