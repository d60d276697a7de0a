// linear as a formula, for double or complex<double>.
#pragma once

#include <cstdint>

#include "mudd/kernels/gemm/reference.h"
#include "mudd/ops/activation/reference.h"

namespace mudd::reference {

// y[rows, n] = act(x[rows, k] w + bias) + residual; w [k, n], or [n, k] when transposed; bias, residual may be
// null.
template <class N>
void linear(int64_t rows, int64_t k, int64_t n, Activation activation, bool transposed, const N* x, const N* w,
            const N* bias, const N* residual, N* y) {
  gemm(rows, n, k, x, w, transposed, y);
  for (int64_t i = 0; i < rows * n; ++i) {
    const N pre = bias ? y[i] + bias[i % n] : y[i];
    y[i] = activate(activation, pre) + (residual ? residual[i] : N(0));
  }
}

}  // namespace mudd::reference
