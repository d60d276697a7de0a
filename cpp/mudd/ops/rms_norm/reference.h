// rms_norm as a formula, for any number type (double, complex<double> for the complex step).
#pragma once

#include <cmath>
#include <cstdint>

namespace mudd::reference {

template <class N>
void rms_norm(int64_t rows, int64_t d_model, const N* x, const N* gain, double eps, N* y) {
  using std::sqrt;
  for (int64_t r = 0; r < rows; ++r) {
    N squares = 0;
    for (int64_t d = 0; d < d_model; ++d) squares += x[r * d_model + d] * x[r * d_model + d];
    const N inv = N(1) / sqrt(squares / N(double(d_model)) + N(eps));
    for (int64_t d = 0; d < d_model; ++d) y[r * d_model + d] = x[r * d_model + d] * inv * (gain ? gain[d] : N(1));
  }
}

}  // namespace mudd::reference
