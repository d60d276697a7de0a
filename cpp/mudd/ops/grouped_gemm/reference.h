// grouped_gemm and the adapters of its experts as formulas, for double or complex<double>.
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

// Return a stack of E matrices W + scale A B [in, out] with a [E, in, rank]. b [E, parts rank, out] has the B of
// each part, of which this stack is one.
template <class N>
std::vector<N> adapted_stack(int64_t E, int64_t in, int64_t out, int64_t rank, int64_t parts, int64_t part,
                             double scale, std::vector<N> w, const N* a, const N* b) {
  for (int64_t e = 0; e < E; ++e)
    for (int64_t i = 0; i < in; ++i)
      for (int64_t o = 0; o < out; ++o) {
        N sum = 0;
        for (int64_t r = 0; r < rank; ++r)
          sum += a[(e * in + i) * rank + r] * b[((e * parts + part) * rank + r) * out + o];
        w[static_cast<size_t>((e * in + i) * out + o)] += scale * sum;
      }
  return w;
}

}  // namespace mudd::reference
