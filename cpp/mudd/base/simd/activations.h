// The activations and their derivatives over Vec, once for every op that applies one.
//
//   silu(x) = x s(x), s the logistic function           Hendrycks and Gimpel 2016, Elfwing et al. 2017
//   gelu_erf(x) = x Phi(x), Phi the normal distribution  Hendrycks and Gimpel 2016
//   gelu_tanh(x) = x s(2u) = x/2 (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3)   the same, section 2
//   relu(x) = max(0, x), squared_relu(x) = max(0, x)^2   So et al. 2021
// The logistic form of gelu_tanh has no cancellation for negative x and costs one exp.
// Errors against double over [-20, 20], in units of max(1, |value|): 4e-7 (checked in activation_test.cc).
#pragma once

#include "mudd/base/activation.h"
#include "mudd/base/simd/math.h"

namespace mudd::MUDD_ISA {

// Carries an activation to a generic lambda: body(ActivationTag<A>{}).
template <Activation A>
struct ActivationTag {
  static constexpr Activation kind = A;
};

// Convert the run-time name to a compile-time one, outside the loops.
template <class Body>
inline void with_activation(Activation a, Body body) {
  switch (a) {
    case Activation::none: return body(ActivationTag<Activation::none>{});
    case Activation::silu: return body(ActivationTag<Activation::silu>{});
    case Activation::gelu_tanh: return body(ActivationTag<Activation::gelu_tanh>{});
    case Activation::gelu_erf: return body(ActivationTag<Activation::gelu_erf>{});
    case Activation::relu: return body(ActivationTag<Activation::relu>{});
    case Activation::squared_relu: return body(ActivationTag<Activation::squared_relu>{});
  }
}

// Return 2u of gelu_tanh and its derivative by x.
inline Vec gelu_argument(Vec x) {
  const Vec z = x * x;
  return x * fma(Vec::set1(2 * 0.7978845608f * 0.044715f), z, Vec::set1(2 * 0.7978845608f));
}
inline Vec gelu_argument_derivative(Vec x) {
  return fma(Vec::set1(6 * 0.7978845608f * 0.044715f), x * x, Vec::set1(2 * 0.7978845608f));
}

// Return Phi(x), from the tail Q = 1 - Phi(|x|) by formula 7.1.26 of Abramowitz and Stegun at |x|/sqrt 2
// (absolute error 8e-8); `bell` is exp(-x^2/2). For negative x the tail is the result, so nothing cancels.
inline Vec normal_distribution(Vec x, Vec bell) {
  const Vec one = Vec::set1(1.0f);
  const Vec t = one / fma(Vec::set1(0.3275911f * 0.70710678f), abs(x), one);
  Vec p = Vec::set1(0.5f * 1.061405429f);
  p = fma(p, t, Vec::set1(0.5f * -1.453152027f));
  p = fma(p, t, Vec::set1(0.5f * 1.421413741f));
  p = fma(p, t, Vec::set1(0.5f * -0.284496736f));
  p = fma(p, t, Vec::set1(0.5f * 0.254829592f));
  const Vec tail = p * t * bell;
  return select(less(x, Vec::zero()), tail, one - tail);
}

// The logistic function s(z) and s(-z) = 1 - s(z), both without cancellation.
struct Logistic {
  Vec s, rest;
};
inline Logistic logistic(Vec z) {
  const Vec e = exp_nonpositive(Vec::zero() - abs(z));
  const Vec large = Vec::set1(1.0f) / (Vec::set1(1.0f) + e), small = e * large;
  const Mask negative = less(z, Vec::zero());
  return {select(negative, small, large), select(negative, large, small)};
}

struct ValueAndSlope {
  Vec value, slope;
};

// Return A(x) and A'(x), which share the exponential. At the kink of relu the slope is 0.
template <Activation A>
inline ValueAndSlope activate_with_slope(Vec x) {
  const Vec one = Vec::set1(1.0f);
  if constexpr (A == Activation::silu) {
    const Logistic l = logistic(x);
    return {x * l.s, l.s * fma(x, l.rest, one)};
  } else if constexpr (A == Activation::gelu_tanh) {
    const Logistic l = logistic(gelu_argument(x));
    return {x * l.s, l.s * fma(x * gelu_argument_derivative(x), l.rest, one)};
  } else if constexpr (A == Activation::gelu_erf) {
    const Vec bell = exp_nonpositive(x * x * Vec::set1(-0.5f));
    const Vec phi = normal_distribution(x, bell);
    return {x * phi, fma(x * Vec::set1(0.3989422804f), bell, phi)};
  } else if constexpr (A == Activation::relu) {
    return {max(Vec::zero(), x), select(less(Vec::zero(), x), one, Vec::zero())};
  } else if constexpr (A == Activation::squared_relu) {
    const Vec r = max(Vec::zero(), x);
    return {r * r, r + r};
  } else {
    return {x, one};
  }
}

template <Activation A>
inline Vec activate(Vec x) {
  return activate_with_slope<A>(x).value;
}

template <Activation A>
inline Vec activate_derivative(Vec x) {
  return activate_with_slope<A>(x).slope;
}

}  // namespace mudd::MUDD_ISA
