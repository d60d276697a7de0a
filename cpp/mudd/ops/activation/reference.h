// The activations as their formulas read, in double or complex<double> (complex step: branches look at the
// real part). gelu_erf has no complex form in the standard library; its slope is written out below.
#pragma once

#include <cmath>
#include <complex>

#include "mudd/base/activation.h"

namespace mudd::reference {

inline double real_part(double x) { return x; }
inline double real_part(std::complex<double> x) { return x.real(); }

inline double normal_distribution(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
// One step of Taylor's series is exact for the complex step's tiny imaginary part.
inline std::complex<double> normal_distribution(std::complex<double> x) {
  const double bell = std::exp(-0.5 * x.real() * x.real()) / std::sqrt(2 * 3.14159265358979323846);
  return {normal_distribution(x.real()), bell * x.imag()};
}

template <class N>
N activate(Activation a, N x) {
  using std::exp;
  using std::tanh;
  const bool positive = real_part(x) > 0;
  switch (a) {
    case Activation::none: return x;
    case Activation::silu: return x / (N(1) + exp(-x));
    case Activation::gelu_tanh:
      return N(0.5) * x * (N(1) + tanh(N(std::sqrt(2 / 3.14159265358979323846)) * (x + N(0.044715) * x * x * x)));
    case Activation::gelu_erf: return x * normal_distribution(x);
    case Activation::relu: return positive ? x : N(0);
    case Activation::squared_relu: return positive ? x * x : N(0);
  }
  return x;
}

// A'(x) by the complex step.
inline double activate_slope(Activation a, double x) {
  constexpr double h = 1e-30;
  return activate(a, std::complex<double>(x, h)).imag() / h;
}

}  // namespace mudd::reference
