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

struct Mask {
  bool on[kArrayLanes];
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

template <class F>
inline Vec each(Vec a, F f) {
  Vec r;
  for (int i = 0; i < Vec::kLanes; ++i) r.v[i] = f(a.v[i]);
  return r;
}

inline Vec min(Vec a, Vec b) {
  Vec r;
  for (int i = 0; i < Vec::kLanes; ++i) r.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
  return r;
}
inline Vec max(Vec a, Vec b) {
  Vec r;
  for (int i = 0; i < Vec::kLanes; ++i) r.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return r;
}
inline Vec sqrt(Vec a) { return each(a, [](float x) { return __builtin_sqrtf(x); }); }
inline Vec abs(Vec a) { return each(a, [](float x) { return __builtin_fabsf(x); }); }

// 1.5 * 2^23 pushes the fraction out of the mantissa with the current (nearest-even) rounding.
inline Vec round(Vec a) {
  return each(a, [](float x) {
    if (__builtin_fabsf(x) >= 4194304.0f) return x;
    volatile float shifted = x + 12582912.0f;
    return shifted - 12582912.0f;
  });
}

inline Vec pow2(Vec n) {
  return each(n, [](float x) {
    const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(x) + 127) << 23;
    float r;
    std::memcpy(&r, &bits, 4);
    return r;
  });
}
inline Vec exponent(Vec a) {
  return each(a, [](float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return static_cast<float>(static_cast<int32_t>(bits >> 23) - 127);
  });
}
inline Vec mantissa(Vec a) {
  return each(a, [](float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    bits = (bits & 0x007fffffu) | 0x3f800000u;
    float r;
    std::memcpy(&r, &bits, 4);
    return r;
  });
}

inline Mask less(Vec a, Vec b) {
  Mask m;
  for (int i = 0; i < Vec::kLanes; ++i) m.on[i] = a.v[i] < b.v[i];
  return m;
}
inline Vec select(Mask m, Vec a, Vec b) {
  Vec r;
  for (int i = 0; i < Vec::kLanes; ++i) r.v[i] = m.on[i] ? a.v[i] : b.v[i];
  return r;
}

}  // namespace mudd::MUDD_ISA
