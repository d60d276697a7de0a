// exp, log, tanh, erf and gelu over Vec. Ours, so that the same level gives the same bits on every CPU.
// Errors (checked in tests/cpp/simd_math_test.cc against double): exp 2 ulp, log 3 ulp (+1e-7 near 1),
// tanh 4 ulp + 1e-7, erf 5e-7 absolute.
#pragma once

#include "mudd/base/simd/vec.h"

namespace mudd::MUDD_ISA {

// e^x by x = n ln2 + r, |r| <= ln2/2, Taylor-like minimax of degree 6 in r; below -87.3 gives 0
// (softmax needs an exact zero for masked scores), above 88.7 gives the largest finite steps then inf.
inline Vec exp(Vec x) {
  const Vec low = Vec::set1(-87.33654f), high = Vec::set1(88.72283f);
  const Vec c = min(high, max(low, x));  // this order keeps NaN: x is the second operand
  const Vec n = round(c * Vec::set1(1.44269504f));
  Vec r = fnma(n, Vec::set1(0.693145751953125f), c);
  r = fnma(n, Vec::set1(1.42860682030941723e-6f), r);
  Vec p = Vec::set1(1.3888889e-3f);
  p = fma(p, r, Vec::set1(8.3333333e-3f));
  p = fma(p, r, Vec::set1(4.1666667e-2f));
  p = fma(p, r, Vec::set1(1.6666667e-1f));
  p = fma(p, r, Vec::set1(0.5f));
  p = fma(p, r, Vec::set1(1.0f));
  p = fma(p, r, Vec::set1(1.0f));
  // 2^n in two factors: n = 128 has no single fp32 power of two.
  const Vec half = round(n * Vec::set1(0.5f));
  const Vec y = p * pow2(half) * pow2(n - half);
  const Vec bounded = select(less(high, x), Vec::set1(__builtin_inff()), y);
  return select(less(x, low), Vec::zero(), bounded);
}

// ln x for positive normal x: mantissa folded into [sqrt(1/2), sqrt(2)), atanh series in s = f/(2+f).
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

// tanh x = 1 - 2/(e^{2x}+1) away from zero; odd series near it, where the difference would cancel.
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

// erf by the rational approximation 7.1.26 of Abramowitz and Stegun (absolute error 1.5e-7), odd.
inline Vec erf(Vec x) {
  const Vec a = abs(x);
  const Vec t = Vec::set1(1.0f) / fma(Vec::set1(0.3275911f), a, Vec::set1(1.0f));
  Vec p = Vec::set1(1.061405429f);
  p = fma(p, t, Vec::set1(-1.453152027f));
  p = fma(p, t, Vec::set1(1.421413741f));
  p = fma(p, t, Vec::set1(-0.284496736f));
  p = fma(p, t, Vec::set1(0.254829592f));
  const Vec y = fnma(p * t, exp(Vec::zero() - a * a), Vec::set1(1.0f));
  return select(less(x, Vec::zero()), Vec::zero() - y, y);
}

inline Vec sigmoid(Vec x) { return Vec::set1(1.0f) / (Vec::set1(1.0f) + exp(Vec::zero() - x)); }

}  // namespace mudd::MUDD_ISA
