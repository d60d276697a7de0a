// The activations as formulas, in double or complex<double> (complex step: branches look at the real part).
// gelu_erf has no complex form in the standard library, so its slope is written out below.
#pragma once

#include <cmath>
#include <complex>

#include "mudd/base/activation.h"
#include "mudd/ops/activation/pointwise.h"

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

template <class N>
N softplus(N x) {
  return real_part(x) > 0 ? x + std::log(N(1) + std::exp(-x)) : std::log(N(1) + std::exp(x));
}

template <class N>
N clip(N x, double low, double high) {
  return real_part(x) > high ? N(high) : real_part(x) > low ? x : N(low);
}

template <class N>
N activate(Pointwise p, N x) {
  const bool positive = real_part(x) > 0;
  switch (p) {
    case Pointwise::relu6: return clip(x, 0, 6);
    case Pointwise::sigmoid: return N(1) / (N(1) + std::exp(-x));
    case Pointwise::tanh: return std::tanh(x);
    case Pointwise::softplus: return softplus(x);
    case Pointwise::log_sigmoid: return -softplus(-x);
    case Pointwise::soft_sign: return positive ? x / (N(1) + x) : x / (N(1) - x);
    case Pointwise::leaky_relu: return positive ? x : x * 0.01;
    case Pointwise::hard_sigmoid: return clip(x + N(3), 0, 6) / 6.0;
    case Pointwise::hard_silu: return x * clip(x + N(3), 0, 6) / 6.0;
    case Pointwise::hard_tanh: return clip(x, -1, 1);
    case Pointwise::elu: return positive ? x : std::exp(x) - N(1);
    case Pointwise::selu: return 1.0507009873554805 * (positive ? x : 1.6732632423543772 * (std::exp(x) - N(1)));
    case Pointwise::squareplus:
      return positive ? (x + std::sqrt(x * x + N(4))) / 2.0 : N(2) / (std::sqrt(x * x + N(4)) - x);
    case Pointwise::sparse_plus: {
      const N inner = (x + N(1)) * (x + N(1)) / 4.0;
      return real_part(x) >= 1 ? x : real_part(x) > -1 ? inner : N(0);
    }
    case Pointwise::sparse_sigmoid: return clip((x + N(1)) / 2.0, 0, 1);
    case Pointwise::mish: return x * std::tanh(softplus(x));
  }
  return x;
}

// A'(x) by the complex step.
template <class Kind>
double activate_slope(Kind a, double x) {
  constexpr double h = 1e-30;
  return activate(a, std::complex<double>(x, h)).imag() / h;
}

}  // namespace mudd::reference
