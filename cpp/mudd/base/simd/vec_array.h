// Vec as a compiler vector: four lanes at the portable level, which fit the registers of every CPU, and sixteen
// for tests that emulate AVX-512.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "mudd/base/simd/fused.h"

namespace mudd::MUDD_ISA {

#if defined(MUDD_VEC_SIXTEEN)
constexpr int kArrayLanes = 16;
#else
constexpr int kArrayLanes = 4;
#endif

typedef int32_t Ints __attribute__((vector_size(kArrayLanes * 4)));

struct Mask {
  Ints on;  // all bits of a lane or none
};

struct Vec {
  static constexpr int kLanes = kArrayLanes;
  typedef float Lanes __attribute__((vector_size(kLanes * 4)));
  Lanes v;

  static Vec load(const float* p) {
    Vec r;
    std::memcpy(&r.v, p, sizeof r.v);
    return r;
  }
  static Vec load_n(const float* p, int n) {
    Vec r{};
    for (int i = 0; i < n; ++i) r.v[i] = p[i];
    return r;
  }
  static Vec set1(float x) {
#if !defined(MUDD_VEC_SIXTEEN)
    return {Lanes{x, x, x, x}};
#else
    Vec r;
    for (int i = 0; i < kLanes; ++i) r.v[i] = x;
    return r;
#endif
  }
  static Vec zero() { return set1(0.0f); }
  void store(float* p) const { std::memcpy(p, &v, sizeof v); }
  void store_n(float* p, int n) const {
    for (int i = 0; i < n; ++i) p[i] = v[i];
  }
  // Add the second half of the lanes to the first, until one is left: the tree of vec_avx512.h.
  float sum() const {
    float t[kLanes];
    store(t);
    for (int half = kLanes / 2; half >= 1; half /= 2)
      for (int i = 0; i < half; ++i) t[i] = t[i] + t[i + half];
    return t[0];
  }
  float max_lane() const {
    float t[kLanes];
    store(t);
    for (int half = kLanes / 2; half >= 1; half /= 2)
      for (int i = 0; i < half; ++i) t[i] = t[i] > t[i + half] ? t[i] : t[i + half];
    return t[0];
  }
};

inline Vec operator+(Vec a, Vec b) { return {a.v + b.v}; }
inline Vec operator-(Vec a, Vec b) { return {a.v - b.v}; }
inline Vec operator*(Vec a, Vec b) { return {a.v * b.v}; }
inline Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }

MUDD_INLINE Vec fma(Vec a, Vec b, Vec c) { return {fused_lanes(a.v, b.v, c.v)}; }
MUDD_INLINE Vec fnma(Vec a, Vec b, Vec c) { return fma(Vec{-a.v}, b, c); }

#if defined(__SSE2__) && !defined(MUDD_VEC_SIXTEEN)
inline Vec min(Vec a, Vec b) { return {_mm_min_ps(a.v, b.v)}; }
inline Vec max(Vec a, Vec b) { return {_mm_max_ps(a.v, b.v)}; }
inline Vec sqrt(Vec a) { return {_mm_sqrt_ps(a.v)}; }
#else
#if defined(__aarch64__)
// Return zero for a denormal, as x86-64 writes it with FTZ. The compiler must not see the 1.
inline Vec flushed(Vec a) {
  float one = 1.0f;
  asm("" : "+w"(one));
  return {a.v * one};
}
#else
inline Vec flushed(Vec a) { return a; }
#endif
inline Vec min(Vec a, Vec b) { return flushed({a.v < b.v ? a.v : b.v}); }
inline Vec max(Vec a, Vec b) { return flushed({a.v > b.v ? a.v : b.v}); }
inline Vec sqrt(Vec a) {
  Vec r;
  for (int i = 0; i < Vec::kLanes; ++i) r.v[i] = __builtin_sqrtf(a.v[i]);
  return r;
}
#endif

// The same bits as integers or as floats.
inline Ints bits_of(Vec a) { return reinterpret_cast<Ints>(a.v); }
inline Vec from_bits(Ints bits) { return {reinterpret_cast<Vec::Lanes>(bits)}; }

inline Vec abs(Vec a) { return from_bits(bits_of(a) & 0x7fffffff); }

// Adding 1.5 * 2^23 shifts the fraction out of the mantissa with the current (nearest-even) rounding; no
// compiler flag in use cancels the two operations. Above 2^22 the shift would lose bits, so x stays (its
// fractions, halves at most, are never needed). The sign of zero is the sign of x.
inline Vec round(Vec a) {
  const Vec::Lanes shifted = (a.v + 12582912.0f) - 12582912.0f;
  const Ints sign = bits_of(a) & static_cast<int32_t>(0x80000000u);
  const Vec rounded = from_bits(bits_of(Vec{shifted}) | sign);
  return {abs(a).v < 4194304.0f ? rounded.v : a.v};
}

inline Vec pow2(Vec n) { return from_bits((__builtin_convertvector(n.v, Ints) + 127) << 23); }
inline Vec exponent(Vec a) {
  typedef uint32_t Unsigned __attribute__((vector_size(sizeof(Ints))));
  const Ints biased = reinterpret_cast<Ints>(reinterpret_cast<Unsigned>(a.v) >> 23);
  return {__builtin_convertvector(biased - 127, Vec::Lanes)};
}
inline Vec mantissa(Vec a) { return from_bits((bits_of(a) & 0x007fffff) | 0x3f800000); }

#if defined(__SSE2__) && !defined(MUDD_VEC_SIXTEEN)
// gcc would merge a comparison and a choice of its operands into a minimum, which returns zero for a denormal.
inline Mask less(Vec a, Vec b) { return {reinterpret_cast<Ints>(_mm_cmplt_ps(a.v, b.v))}; }
inline Vec select(Mask m, Vec a, Vec b) {
  const __m128 on = reinterpret_cast<__m128>(m.on);
  return {_mm_or_ps(_mm_and_ps(on, a.v), _mm_andnot_ps(on, b.v))};
}
#else
inline Mask less(Vec a, Vec b) { return {a.v < b.v}; }
inline Vec select(Mask m, Vec a, Vec b) { return {m.on ? a.v : b.v}; }
#endif

}  // namespace mudd::MUDD_ISA
