// adamw: the update of Loshchilov and Hutter 2019 (as torch.optim.AdamW). The training step runs it over all
// parameters in its sweep (optim/update.h); as a node it is one update on arrays.
//
// Per element, in exactly this order of fp32 roundings (fma is one rounding; two at the portable level):
//   g = (((g0 + g1) + g2) + g3) * grad_scale            uses of a tied parameter in order
//   m = fma(1 - beta1, g, beta1 * m)
//   v = fma((1 - beta2) * g, g, beta2 * v)
//   w = fma(-decay, w, w)
//   w = fma(-(lr / bias_correction1), m / fma(sqrt(v + r), 1 / sqrt(bias_correction2), eps), w)
// r = eps_root * bias_correction2: the epsilon below the root of the bias-corrected v (optax), 0 in the node.
// The scalars 1 - beta, lr / bias_correction1, r and 1 / sqrt(bias_correction2) are computed in double, then
// rounded. A bf16 first moment is rounded when it is stored; the update uses the unrounded one
// (docs/maths/mup.md, 2.2). A bf16 second moment is stored as the upper half of bits(v) + cut_offset(t)
// (convert.h). The update uses the v before.
//
// Node: inputs w, gradient, first, second (fp32, one shape), outputs the new w, first and second.
// Backward with D = sqrt(v) root + eps, root = 1 / sqrt(bias_correction2), r = lr / bias_correction1:
//   dm = dfirst - r dy / D,   dv = dsecond + r dy m root / (2 D^2 sqrt(v))    0 if v = 0
//   dw = (1 - decay) dy,   dgradient = (1 - beta1) dm + 2 (1 - beta2) g dv,   beta1 dm,   beta2 dv
#pragma once

#include <cstdint>

namespace mudd {

// Return 1 - beta^t for the t-th update, t from 1, without libm.
double bias_correction(double beta, int64_t t);

}  // namespace mudd
