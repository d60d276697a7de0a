// layer_norm as a formula, for any number type (double, complex<double> for the complex step).
#pragma once

#include <cmath>
#include <cstdint>

namespace mudd::reference {

template <class N>
void layer_norm(int64_t rows, int64_t d_model, const N* x, const N* gain, const N* bias, double eps, N* y,
                double gain_offset = 0, double scale = 1) {
  using std::sqrt;
  for (int64_t r = 0; r < rows; ++r) {
    const N* xr = x + r * d_model;
    N mean = 0, variance = 0;
    for (int64_t d = 0; d < d_model; ++d) mean += xr[d];
    mean /= N(double(d_model));
    for (int64_t d = 0; d < d_model; ++d) variance += (xr[d] - mean) * (xr[d] - mean);
    const N inv = N(1) / sqrt(variance / N(double(d_model)) + N(eps));
    for (int64_t d = 0; d < d_model; ++d)
      y[r * d_model + d] =
          N(scale) * ((xr[d] - mean) * inv * (gain ? N(gain_offset) + gain[d] : N(1)) + (bias ? bias[d] : N(0)));
  }
}

}  // namespace mudd::reference
