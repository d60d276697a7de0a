// pattention as formulas, for double or complex<double> (branches look at the real part).
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "mudd/ops/activation/reference.h"
#include "mudd/ops/pattention/pattention.h"

namespace mudd::reference {

// Compute one row of scores in place; `tau` and `eps` as in Theta.
template <class N>
void pattention_theta(const Theta& t, int64_t n, N* a) {
  using std::exp;
  using std::sqrt;
  const bool before =
      t.norm == SlotNorm::gelu_l2_norm || t.norm == SlotNorm::gelu || t.norm == SlotNorm::gelu_layer_norm;
  for (int64_t i = 0; before && i < n; ++i) a[i] = activate(t.gelu, a[i]);
  N sum = 0, squares = 0;
  if (t.norm == SlotNorm::softmax) {
    double most = real_part(a[0]);
    for (int64_t i = 0; i < n; ++i) most = std::max(most, real_part(a[i]));
    for (int64_t i = 0; i < n; ++i) sum += a[i] = exp(a[i] - N(most));
    for (int64_t i = 0; i < n; ++i) a[i] *= N(double(n)) / sum;
  } else if (t.norm == SlotNorm::gelu_layer_norm) {
    for (int64_t i = 0; i < n; ++i) sum += a[i] / N(double(n));
    for (int64_t i = 0; i < n; ++i) squares += (a[i] - sum) * (a[i] - sum) / N(double(n));
    const N deviation = sqrt(squares + N(t.eps));
    for (int64_t i = 0; i < n; ++i) a[i] = real_part(deviation) > 0 ? (a[i] - sum) / deviation : N(0);
  } else if (t.norm != SlotNorm::gelu) {
    for (int64_t i = 0; i < n; ++i) squares += a[i] * a[i];
    const N factor = real_part(squares) > 0 ? N(t.tau) / (sqrt(squares) + N(t.eps)) : N(0);
    for (int64_t i = 0; i < n; ++i) a[i] *= factor;
  }
  for (int64_t i = 0; t.norm == SlotNorm::l2_norm_gelu && i < n; ++i) a[i] = activate(t.gelu, a[i]);
}

// y[rows, d_out] of x [rows, d_in]; biases and residual may be null.
template <class N>
void pattention(const Theta& t, int64_t rows, int64_t d_in, int64_t n, int64_t d_out, const N* x, const N* key,
                const N* value, const N* key_bias, const N* value_bias, const N* residual, N* y) {
  std::vector<N> a(static_cast<size_t>(n));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < n; ++i) {
      a[i] = key_bias ? key_bias[i] : N(0);
      for (int64_t d = 0; d < d_in; ++d) a[i] += x[r * d_in + d] * key[i * d_in + d];
    }
    pattention_theta(t, n, a.data());
    for (int64_t d = 0; d < d_out; ++d) {
      N sum = (value_bias ? value_bias[d] : N(0)) + (residual ? residual[r * d_out + d] : N(0));
      for (int64_t i = 0; i < n; ++i) sum += N(t.scale) * a[i] * value[i * d_out + d];
      y[r * d_out + d] = sum;
    }
  }
}

}  // namespace mudd::reference
