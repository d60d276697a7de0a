// sgd: gradient descent with Nesterov momentum, as torch.optim.SGD(nesterov=True) (Sutskever et al. 2013). The
// training step runs it over all parameters in its sweep (optim/update.h); as a node it is one update on arrays.
//
// Per element, in this order of fp32 roundings:
//   m = fma(momentum, m, g)                 g the summed gradient times grad_scale, as in adamw
//   w = fma(-decay, w, w)                   decoupled, unlike torch's weight_decay
//   w = fma(-lr, fma(momentum, m, g), w)   without Nesterov's look ahead (settings): w = fma(-lr, m, w)
//
// Node: inputs w, gradient, moment (fp32, one shape), outputs new w, new moment. Backward, dy and dm the
// gradients of the outputs:
//   dw = (1 - decay) dy,   dgradient = dm - lr (1 + momentum) dy,   dmoment = momentum dm - lr momentum^2 dy.
#pragma once

#include "mudd/base/kernel_table.h"
#include "mudd/optim/update_kernels.h"

namespace mudd {

#define MUDD_KERNELS UpdateKernels
#define MUDD_KERNEL_LIST "mudd/optim/sgd/kernels.inc"
#include "mudd/base/kernel_rows.inc"

std::span<const KernelRow<UpdateKernels>> sgd_rows();
const OptimizerSpec& sgd_spec();
std::unique_ptr<Elementwise> sgd_optimizer(const OptimizerSettings& settings);

}  // namespace mudd
