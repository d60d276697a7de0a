// lion: the update of Chen et al. 2023, arXiv 2302.06675 (docs/maths/optimizers.md, 3). The training step runs it
// over all parameters in its sweep (optim/update.h); as a node it is one update on arrays.
//
// Per element, in this order of fp32 roundings:
//   d = fma(1 - beta1, g, beta1 * m)        g the summed gradient times grad_scale, as in adamw
//   m = fma(1 - beta2, g, beta2 * m)
//   w = fma(-decay, w, w)
//   w = fma(-lr, sign(d), w)                sign(0) = 0
//
// Node: inputs w, gradient, moment (fp32, one shape), outputs new w, new moment. Backward, dy and dm the
// gradients of the outputs (the sign is flat):
//   dw = (1 - decay) dy,   dgradient = (1 - beta2) dm,   dmoment = beta2 dm.
#pragma once

#include "mudd/base/kernel_table.h"
#include "mudd/optim/update_kernels.h"

namespace mudd {

#define MUDD_KERNELS UpdateKernels
#define MUDD_KERNEL_LIST "mudd/optim/lion/kernels.inc"
#include "mudd/base/kernel_rows.inc"

std::span<const KernelRow<UpdateKernels>> lion_rows();
const OptimizerSpec& lion_spec();
std::unique_ptr<Elementwise> lion_optimizer(const OptimizerSettings& settings);

}  // namespace mudd
