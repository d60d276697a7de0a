// exp, log, tanh, erf and the logistic function over Vec, with the same bits on every CPU. Errors in units of
// the last place if the result is a normal number (tests/cpp/simd_math_test.cc, against double): exp 1.2, log
// 2.2, tanh 1.8, erf 2.5, sigmoid 2.5. NaN stays NaN.
#pragma once

#include "mudd/base/simd/vec.h"

namespace mudd::MUDD_ISA {

// e^x = p 2^n: x = n ln2 + r, |r| <= ln2/2, and p = 1 + r + r^2 q(r), q of degree 4 fitted by Lawson's iteration
// (relative error 3e-9 before rounding).
struct Exponential {
  Vec p, n;
};
inline Exponential exponential(Vec x) {
  const Vec n = round(x * Vec::set1(1.44269504f));
  Vec r = fnma(n, Vec::set1(0.693145751953125f), x);
  r = fnma(n, Vec::set1(1.42860682030941723e-6f), r);
  Vec p = Vec::set1(1.381417411e-3f);
  p = fma(p, r, Vec::set1(8.368921844e-3f));
  p = fma(p, r, Vec::set1(4.166840798e-2f));
  p = fma(p, r, Vec::set1(1.666651894e-1f));
  p = fma(p, r, Vec::set1(4.999999333e-1f));
  p = fma(p, r, Vec::set1(1.0f));
  return {fma(p, r, Vec::set1(1.0f)), n};
}

// Below this, e^x is exactly 0: softmax needs an exact zero for masked scores.
constexpr float kLowestExp = -87.33654f;

// Return e^x; below kLowestExp 0, above 88.7 the largest finite steps, then inf.
inline Vec exp(Vec x) {
  const Vec low = Vec::set1(kLowestExp), high = Vec::set1(88.72283f);
  const Exponential e = exponential(min(high, max(low, x)));  // this order keeps NaN: x is the second operand
  // 2^n in two factors: n = 128 has no single fp32 power of two.
  const Vec half = round(e.n * Vec::set1(0.5f));
  const Vec y = e.p * pow2(half) * pow2(e.n - half);
  const Vec bounded = select(less(high, x), Vec::set1(__builtin_inff()), y);
  return select(less(x, low), Vec::zero(), bounded);
}

// Return the bits of exp(x) for x <= 0, in half the time; for x > 0 any value.
inline Vec exp_nonpositive(Vec x) {
  const Vec low = Vec::set1(kLowestExp);
  const Exponential e = exponential(max(low, x));
  return select(less(x, low), Vec::zero(), e.p * pow2(e.n));
}

// Return ln x for positive normal x: mantissa folded into [sqrt(1/2), sqrt(2)), atanh series in s = f/(2+f).
inline Vec log(Vec x) {
  Vec e = exponent(x), m = mantissa(x);
  const Mask big = less(Vec::set1(1.41421356f), m);
  m = select(big, m * Vec::set1(0.5f), m);
  e = select(big, e + Vec::set1(1.0f), e);
  const Vec f = m - Vec::set1(1.0f);
  const Vec s = f / (f + Vec::set1(2.0f));
  const Vec z = s * s;
  Vec p = Vec::set1(0.22222222f);
  p = fma(p, z, Vec::set1(0.28571429f));
  p = fma(p, z, Vec::set1(0.4f));
  p = fma(p, z, Vec::set1(0.66666667f));
  const Vec series = fma(p * z, s, s + s);
  return fma(e, Vec::set1(0.693145751953125f), fma(e, Vec::set1(1.42860682030941723e-6f), series));
}

// Return tanh x = 1 - 2/(e^{2x}+1) away from zero; near zero the odd series, because the difference would
// cancel.
inline Vec tanh(Vec x) {
  const Vec a = abs(x);
  const Vec t = exp(min(Vec::set1(10.0f), a) * Vec::set1(2.0f));
  const Vec large = Vec::set1(1.0f) - Vec::set1(2.0f) / (t + Vec::set1(1.0f));
  const Vec z = a * a;
  Vec p = Vec::set1(-5.7049e-3f);
  p = fma(p, z, Vec::set1(2.06390887e-2f));
  p = fma(p, z, Vec::set1(-5.37397155e-2f));
  p = fma(p, z, Vec::set1(1.33314422e-1f));
  p = fma(p, z, Vec::set1(-3.33332819e-1f));
  const Vec small = fma(p * z, a, a);
  const Vec y = select(less(a, Vec::set1(0.625f)), small, large);
  return select(less(x, Vec::zero()), Vec::zero() - y, y);
}

// Return erf x, which is odd: x P(x^2) below 1, where 1 - erfc would cancel; above it 1 - Q(t) exp(-x^2), t =
// 1/(1 + 0.4 x), the form of Abramowitz and Stegun 7.1.26. P and Q are fitted by Lawson's iteration, relative
// errors 1e-9 and 4e-8 before rounding.
inline Vec erf(Vec x) {
  const Vec a = abs(x), z = a * a;
  Vec p = Vec::set1(7.853862948e-5f);
  p = fma(p, z, Vec::set1(-8.010194219e-4f));
  p = fma(p, z, Vec::set1(5.188327770e-3f));
  p = fma(p, z, Vec::set1(-2.685381199e-2f));
  p = fma(p, z, Vec::set1(1.128358515e-1f));
  p = fma(p, z, Vec::set1(-3.761262582e-1f));
  p = fma(p, z, Vec::set1(1.128379166f));
  const Vec t = Vec::set1(1.0f) / fma(Vec::set1(0.4f), a, Vec::set1(1.0f));
  Vec q = Vec::set1(6.241524450e-1f);
  q = fma(q, t, Vec::set1(-2.237637054e-1f));
  q = fma(q, t, Vec::set1(4.004876444e-1f));
  q = fma(q, t, Vec::set1(1.992588496e-1f));
  const Vec large = fnma(q * t, exp_nonpositive(Vec::zero() - z), Vec::set1(1.0f));
  const Vec y = select(less(a, Vec::set1(1.0f)), a * p, large);
  return select(less(x, Vec::zero()), Vec::zero() - y, y);
}

// Return 1/(1 + e^-x); 0 below -88.7.
inline Vec sigmoid(Vec x) { return Vec::set1(1.0f) / (Vec::set1(1.0f) + exp(Vec::zero() - x)); }

}  // namespace mudd::MUDD_ISA
