// lora as a formula, for double or complex<double>, without dropout.
#pragma once

#include <cstdint>
#include <vector>

#include "mudd/kernels/gemm/reference.h"

namespace mudd::reference {

// y[rows, n] = x[rows, k] w + scale (x a) b + bias + residual; a [k, rank], b [rank, n]; bias and residual may be
// null.
template <class N>
void lora(int64_t rows, int64_t k, int64_t n, int64_t rank, double scale, const N* x, const N* w, const N* a,
          const N* b, const N* bias, const N* residual, N* y) {
  std::vector<N> u(static_cast<size_t>(rows * rank)), low(static_cast<size_t>(rows * n));
  gemm(rows, n, k, x, w, false, y);
  gemm(rows, rank, k, x, a, false, u.data());
  gemm(rows, n, rank, u.data(), b, false, low.data());
  for (int64_t i = 0; i < rows * n; ++i)
    y[i] += scale * low[static_cast<size_t>(i)] + (bias ? bias[i % n] : N(0)) + (residual ? residual[i] : N(0));
}

}  // namespace mudd::reference
