// Activations and their slopes over Vec, for the epilogue of gemm and the backward of linear. Built per level.
//   silu x s(x) · gelu_tanh x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (gelu_new of GPT-2)
//   gelu_erf x/2 (1 + erf(x / sqrt 2)) (Hendrycks and Gimpel 2016) · relu · squared_relu max(x, 0)^2
#pragma once

#include "mudd/base/simd/math.h"
#include "mudd/ops/gemm/gemm.h"

namespace mudd::MUDD_ISA {
namespace {

constexpr float kRootTwoOverPi = 0.7978845608f, kGeluCubic = 0.044715f, kRootHalf = 0.7071067812f,
                kNormalDensity = 0.3989422804f;

inline Vec gelu_inner(Vec x) {
  return x * Vec::set1(kRootTwoOverPi) * fma(x * x, Vec::set1(kGeluCubic), Vec::set1(1.0f));
}

template <Activation A>
inline Vec activate(Vec x) {
  const Vec half = Vec::set1(0.5f);
  if constexpr (A == Activation::silu) return x * sigmoid(x);
  if constexpr (A == Activation::gelu_tanh) return fma(half * x, tanh(gelu_inner(x)), half * x);
  if constexpr (A == Activation::gelu_erf) return fma(half * x, erf(x * Vec::set1(kRootHalf)), half * x);
  if constexpr (A == Activation::relu) return max(Vec::zero(), x);  // this order keeps NaN
  if constexpr (A == Activation::squared_relu) {
    const Vec r = max(Vec::zero(), x);
    return r * r;
  }
  return x;
}

template <Activation A>
inline Vec slope(Vec x) {
  const Vec one = Vec::set1(1.0f), half = Vec::set1(0.5f);
  if constexpr (A == Activation::silu) {
    const Vec s = sigmoid(x);
    return s * fma(x, one - s, one);
  }
  if constexpr (A == Activation::gelu_tanh) {
    const Vec t = tanh(gelu_inner(x));
    const Vec inner = Vec::set1(kRootTwoOverPi) * fma(x * x, Vec::set1(3.0f * kGeluCubic), one);
    return fma(half * x * fnma(t, t, one), inner, fma(half, t, half));
  }
  if constexpr (A == Activation::gelu_erf) {
    const Vec density = Vec::set1(kNormalDensity) * exp(x * x * Vec::set1(-0.5f));
    return fma(x, density, fma(half, erf(x * Vec::set1(kRootHalf)), half));
  }
  if constexpr (A == Activation::relu) return select(less(Vec::zero(), x), one, Vec::zero());
  if constexpr (A == Activation::squared_relu) return max(Vec::zero(), x + x);
  return one;
}

// Calls body with the activation as a template argument: body.template operator()<A>().
template <class Body>
inline void with_activation(Activation a, Body body) {
  switch (a) {
    case Activation::none: return body.template operator()<Activation::none>();
    case Activation::silu: return body.template operator()<Activation::silu>();
    case Activation::gelu_tanh: return body.template operator()<Activation::gelu_tanh>();
    case Activation::gelu_erf: return body.template operator()<Activation::gelu_erf>();
    case Activation::relu: return body.template operator()<Activation::relu>();
    case Activation::squared_relu: return body.template operator()<Activation::squared_relu>();
  }
}

}  // namespace
}  // namespace mudd::MUDD_ISA
