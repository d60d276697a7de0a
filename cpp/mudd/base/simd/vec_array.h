// Vec as a plain array: the portable level (8 lanes, multiply and add rounded separately, so that no
// CPU needs FMA) and the 16-lane emulation of AVX-512 (fused rounding, for tests on any machine).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace mudd::MUDD_ISA {

#if defined(MUDD_VEC_EMU16)
constexpr int kArrayLanes = 16;
#else
constexpr int kArrayLanes = 8;
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
    Vec r;
    for (int i = 0; i < kLanes; ++i) r.v[i] = x;
    return r;
  }
  static Vec zero() { return set1(0.0f); }
  void store(float* p) const { std::memcpy(p, &v, sizeof v); }
  void store_n(float* p, int n) const {
    for (int i = 0; i < n; ++i) p[i] = v[i];
  }
  // ((0+4)+(2+6)) + ((1+5)+(3+7)): the same tree as the intrinsic versions.
  float sum() const {
    float t[kLanes];
    store(t);
    for (int half = kLanes / 2; half >= 1; half /= 2)
      for (int i = 0; i < half; ++i) t[i] = t[i] + t[i + half];
    return t[0];
  }
  float max_lane() const {
    float m = v[0];
    for (int i = 1; i < kLanes; ++i) m = v[i] > m ? v[i] : m;
    return m;
  }
};

inline Vec operator+(Vec a, Vec b) { return {a.v + b.v}; }
inline Vec operator-(Vec a, Vec b) { return {a.v - b.v}; }
inline Vec operator*(Vec a, Vec b) { return {a.v * b.v}; }
inline Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }

inline Vec fma(Vec a, Vec b, Vec c) {
#if defined(MUDD_VEC_EMU16)
  Vec r;
  for (int i = 0; i < Vec::kLanes; ++i) r.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return r;
#else
  return {a.v * b.v + c.v};
#endif
}
inline Vec fnma(Vec a, Vec b, Vec c) { return fma(Vec{-a.v}, b, c); }

inline Vec min(Vec a, Vec b) { return {a.v < b.v ? a.v : b.v}; }
inline Vec max(Vec a, Vec b) { return {a.v > b.v ? a.v : b.v}; }
inline Vec sqrt(Vec a) {
  Vec r;
  for (int i = 0; i < Vec::kLanes; ++i) r.v[i] = __builtin_sqrtf(a.v[i]);
  return r;
}

// The same bits seen as integers or as floats.
inline Ints bits_of(Vec a) { return reinterpret_cast<Ints>(a.v); }
inline Vec from_bits(Ints bits) { return {reinterpret_cast<Vec::Lanes>(bits)}; }

inline Vec abs(Vec a) { return from_bits(bits_of(a) & 0x7fffffff); }

// 1.5 * 2^23 pushes the fraction out of the mantissa with the current (nearest-even) rounding; no flag in use
// lets the compiler cancel the two. Above 2^22 the shift would lose bits: there x stays (its fractions, halves at
// most, are never asked for).
inline Vec round(Vec a) {
  const Vec::Lanes shifted = (a.v + 12582912.0f) - 12582912.0f;
  return {abs(a).v < 4194304.0f ? shifted : a.v};
}

inline Vec pow2(Vec n) { return from_bits((__builtin_convertvector(n.v, Ints) + 127) << 23); }
inline Vec exponent(Vec a) { return {__builtin_convertvector((bits_of(a) >> 23) - 127, Vec::Lanes)}; }
inline Vec mantissa(Vec a) { return from_bits((bits_of(a) & 0x007fffff) | 0x3f800000); }

inline Mask less(Vec a, Vec b) { return {a.v < b.v}; }
inline Vec select(Mask m, Vec a, Vec b) { return {m.on ? a.v : b.v}; }

}  // namespace mudd::MUDD_ISA
