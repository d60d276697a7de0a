// adamw: the update of Loshchilov and Hutter 2019 (as torch.optim.AdamW). No node: the training step runs it over
// all parameters at once (optim/update.h), clipping and repacking in the same sweep.
//
// Per element, in exactly this order of fp32 roundings (fma is one rounding; two at the portable level):
//   g = (((g0 + g1) + g2) + g3) * grad_scale            uses of a tied parameter in order
//   m = fma(1 - beta1, g, beta1 * m)
//   v = fma((1 - beta2) * g, g, beta2 * v)
//   w = fma(-decay, w, w)
//   w = fma(-(lr / bias_correction1), m / fma(sqrt(v), 1 / sqrt(bias_correction2), eps), w)
// The scalars 1 - beta, lr / bias_correction1 and 1 / sqrt(bias_correction2) are formed in double, then rounded.
// A bf16 first moment is rounded when it is stored; the update uses the unrounded one (docs/maths/mup.md, 2.2).
#pragma once

#include "mudd/base/kernel_table.h"
#include "mudd/optim/update_kernels.h"

namespace mudd {

#define MUDD_KERNEL(name, level)   \
  namespace level {                \
  extern const UpdateKernels name; \
  }
#include "mudd/optim/adamw/kernels.inc"
#undef MUDD_KERNEL

std::span<const KernelRow<UpdateKernels>> adamw_rows();
std::unique_ptr<Elementwise> adamw_optimizer(const OptimizerSettings& settings);

// 1 - beta^t for the t-th update, t from 1, without libm.
double bias_correction(double beta, int64_t t);

}  // namespace mudd
