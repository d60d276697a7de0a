// Values and slopes of the activations of pointwise.h over Vec. At a kink the slope is the one of the flat
// side.
//
//   softplus(x) = ln(1 + e^x), log_sigmoid(x) = -softplus(-x), soft_sign(x) = x / (1 + |x|)
//   elu(x) = x or e^x - 1 (Clevert et al. 2016), selu = scale * (x or alpha (e^x - 1)) (Klambauer et al. 2017)
//   squareplus(x) = (x + sqrt(x^2 + 4)) / 2 (Barron 2021), mish(x) = x tanh(softplus(x)) (Misra 2019)
//   relu6 = clip(x, 0, 6), hard_sigmoid = relu6(x + 3) / 6, hard_silu = x hard_sigmoid, hard_tanh = clip(x, -1, 1)
//   sparse_sigmoid = clip((x + 1) / 2, 0, 1), sparse_plus its integral (jax.nn)
// Errors as in base/simd/activations.h (checked in activation_test.cc).
#pragma once

#include "mudd/base/simd/activations.h"
#include "mudd/ops/activation/pointwise.h"

namespace mudd::MUDD_ISA {

// Return clip(x, low, high) and its slope; NaN stays NaN.
inline ValueAndSlope clip(Vec x, float low, float high) {
  const Vec l = Vec::set1(low), h = Vec::set1(high), zero = Vec::zero();
  const Vec inner = select(less(l, x), select(less(x, h), Vec::set1(1.0f), zero), zero);
  return {min(h, max(l, x)), inner};
}

// e^x - 1 for x <= 0 without cancellation, and e^x.
inline ValueAndSlope exp_minus_one(Vec x) {
  const Vec half = tanh(x * Vec::set1(0.5f));
  return {(half + half) / (Vec::set1(1.0f) - half), exp_nonpositive(x)};
}

// ln(1 + e^x) and the logistic function.
inline ValueAndSlope softplus(Vec x) {
  const Vec one = Vec::set1(1.0f), e = exp_nonpositive(Vec::zero() - abs(x));
  const Vec sum = one + e, rest = sum - one;  // rest: the part of e that the rounded sum contains
  const Vec tail = select(less(Vec::zero(), rest), log(sum) * (e / max(rest, Vec::set1(1e-30f))), e);
  return {max(Vec::zero(), x) + tail, logistic(x).s};
}

// w = tanh(softplus(x)) and 1 - w by e^-|x| alone, without overflow and cancellation.
inline Logistic tanh_softplus(Vec x) {
  const Vec e = exp_nonpositive(Vec::zero() - abs(x)), square = e * e;
  const Mask negative = less(x, Vec::zero());
  const Vec two = Vec::set1(2.0f);
  const Vec top = select(negative, fma(two, e, square), fma(two, e, Vec::set1(1.0f)));
  const Vec rest = select(negative, two, two * square), whole = top + rest;
  return {top / whole, rest / whole};
}

template <Pointwise P>
inline ValueAndSlope pointwise_with_slope(Vec x) {
  const Vec one = Vec::set1(1.0f), zero = Vec::zero();
  const Mask positive = less(zero, x);
  if constexpr (P == Pointwise::relu6) {
    return clip(x, 0.0f, 6.0f);
  } else if constexpr (P == Pointwise::sigmoid) {
    const Logistic l = logistic(x);
    return {l.s, l.s * l.rest};
  } else if constexpr (P == Pointwise::tanh) {
    const Vec t = tanh(x);
    return {t, (one - t) * (one + t)};
  } else if constexpr (P == Pointwise::softplus) {
    return softplus(x);
  } else if constexpr (P == Pointwise::log_sigmoid) {
    const ValueAndSlope mirrored = softplus(zero - x);
    return {zero - mirrored.value, mirrored.slope};
  } else if constexpr (P == Pointwise::soft_sign) {
    const Vec inverse = one / (one + abs(x));
    return {x / (one + abs(x)), inverse * inverse};
  } else if constexpr (P == Pointwise::leaky_relu) {
    const Vec slope = select(positive, one, Vec::set1(0.01f));
    return {x * slope, slope};
  } else if constexpr (P == Pointwise::hard_sigmoid) {
    const ValueAndSlope c = clip(x + Vec::set1(3.0f), 0.0f, 6.0f);
    return {c.value * Vec::set1(1.0f / 6), c.slope * Vec::set1(1.0f / 6)};
  } else if constexpr (P == Pointwise::hard_silu) {
    const ValueAndSlope c = clip(x + Vec::set1(3.0f), 0.0f, 6.0f);
    const Vec gate = c.value / Vec::set1(6.0f);
    return {x * gate, fma(x, c.slope * Vec::set1(1.0f / 6), gate)};
  } else if constexpr (P == Pointwise::hard_tanh) {
    return clip(x, -1.0f, 1.0f);
  } else if constexpr (P == Pointwise::elu) {
    const ValueAndSlope below = exp_minus_one(min(zero, x));
    return {select(positive, x, below.value), select(positive, one, below.slope)};
  } else if constexpr (P == Pointwise::selu) {
    const Vec scale = Vec::set1(kSeluScale), steep = Vec::set1(kSeluScale * kSeluAlpha);
    const ValueAndSlope below = exp_minus_one(min(zero, x));
    return {select(positive, x * scale, steep * below.value), select(positive, scale, steep * below.slope)};
  } else if constexpr (P == Pointwise::squareplus) {
    const Vec root = sqrt(fma(x, x, Vec::set1(4.0f))), sum = root + abs(x);
    const Vec large = sum * Vec::set1(0.5f), small = Vec::set1(2.0f) / sum;
    const Vec value = select(less(x, zero), small, large);
    return {value, value / root};
  } else if constexpr (P == Pointwise::sparse_plus) {
    const ValueAndSlope c = clip(x + one, 0.0f, 2.0f);
    return {fma(c.value * c.value, Vec::set1(0.25f), max(zero, x - one)), c.value * Vec::set1(0.5f)};
  } else if constexpr (P == Pointwise::sparse_sigmoid) {
    const ValueAndSlope c = clip(x + one, 0.0f, 2.0f);
    return {c.value * Vec::set1(0.5f), c.slope * Vec::set1(0.5f)};
  } else {
    const Logistic w = tanh_softplus(x);
    return {x * w.s, fma(x * logistic(x).s, w.rest * (one + w.s), w.s)};
  }
}

// Carries a kind to a generic lambda, like ActivationTag.
template <Pointwise P>
struct PointwiseTag {
  static constexpr Pointwise kind = P;
};

// Convert the run-time kind to a compile-time one, outside the loops.
template <class Body, uint8_t I = 0>
inline void with_pointwise(Pointwise p, Body body) {
  if constexpr (I < std::size(kPointwiseNames)) {
    if (static_cast<uint8_t>(p) == I) return body(PointwiseTag<static_cast<Pointwise>(I)>{});
    with_pointwise<Body, I + 1>(p, body);
  }
}

}  // namespace mudd::MUDD_ISA
