// The GEMMs as formulas, for any element type.
#pragma once

#include <cstdint>

namespace mudd::reference {

// c[m, n] = a[m, k] b[k, n], all contiguous; b[n, k] when transposed.
template <class N>
void gemm(int64_t m, int64_t n, int64_t k, const N* a, const N* b, bool transposed, N* c) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      N sum = 0;
      for (int64_t l = 0; l < k; ++l) sum += a[i * k + l] * (transposed ? b[j * k + l] : b[l * n + j]);
      c[i * n + j] = sum;
    }
}

// dw[m, n] = x[rows, m]^T dy[rows, n].
template <class N>
void weight_gradient(int64_t rows, int64_t m, int64_t n, const N* x, const N* dy, N* dw) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      N sum = 0;
      for (int64_t r = 0; r < rows; ++r) sum += x[r * m + i] * dy[r * n + j];
      dw[i * n + j] = sum;
    }
}

}  // namespace mudd::reference
