// grouped_gemm as a formula, for double or complex<double>.
#pragma once

#include <cstdint>
#include <vector>

#include "mudd/ops/activation/reference.h"

namespace mudd::reference {

// y[t] = residual[t] + sum_r gates[t, r] (A(x Wg_e) * (x Wu_e)) Wd_e; residual may be null.
template <class N>
void grouped_gemm(int64_t tokens, int64_t k, int64_t D, int64_t F, Activation activation, bool passthrough,
                  const N* x, const N* gates, const int32_t* experts, const N* wg, const N* wu, const N* wd,
                  const N* residual, N* y) {
  for (int64_t t = 0; t < tokens; ++t) {
    bool any = false;
    for (int64_t d = 0; d < D; ++d) y[t * D + d] = residual ? residual[t * D + d] : N(0);
    for (int64_t r = 0; r < k; ++r) {
      const int64_t e = experts[t * k + r];
      if (e < 0) continue;
      any = true;
      for (int64_t f = 0; f < F; ++f) {
        N gate = 0, up = 0;
        for (int64_t d = 0; d < D; ++d) {
          gate += x[t * D + d] * wg[(e * D + d) * F + f];
          up += x[t * D + d] * wu[(e * D + d) * F + f];
        }
        const N h = activate(activation, gate) * up * gates[t * k + r];
        for (int64_t d = 0; d < D; ++d) y[t * D + d] += h * wd[(e * F + f) * D + d];
      }
    }
    if (!any && passthrough)
      for (int64_t d = 0; d < D; ++d) y[t * D + d] += x[t * D + d];
  }
}

}  // namespace mudd::reference
