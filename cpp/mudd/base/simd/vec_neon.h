// Vec over NEON of aarch64: 8 lanes in two registers. There is then room for 16 vectors, as on AVX2, for which
// the kernels' loops over eight lanes are written. With four registers a vector there would be room for eight.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace mudd::MUDD_ISA {

struct Mask {
  uint32x4_t low, high;
};

// Return zero for a denormal, as x86-64 writes it with FTZ: no arithmetic is part of a choice between two values.
// The compiler must not see the 1.
inline float32x4_t flushed(float32x4_t a) {
  float32x4_t one = vdupq_n_f32(1.0f);
  asm("" : "+w"(one));
  return vmulq_f32(a, one);
}
// The second operand if one is NaN or both are zeros, as on x86-64. FMIN and FMAX choose otherwise.
inline float32x4_t smaller(float32x4_t a, float32x4_t b) { return flushed(vbslq_f32(vcltq_f32(a, b), a, b)); }
inline float32x4_t larger(float32x4_t a, float32x4_t b) { return flushed(vbslq_f32(vcgtq_f32(a, b), a, b)); }

struct Vec {
  static constexpr int kLanes = 8;
  float32x4_t low, high;

  static Vec load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
  static Vec load_n(const float* p, int n) {
    float lanes[kLanes] = {};
    __builtin_memcpy(lanes, p, static_cast<size_t>(n) * sizeof(float));
    return load(lanes);
  }
  static Vec set1(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
  static Vec zero() { return set1(0.0f); }
  void store(float* p) const {
    vst1q_f32(p, low);
    vst1q_f32(p + 4, high);
  }
  void store_n(float* p, int n) const {
    float lanes[kLanes];
    store(lanes);
    __builtin_memcpy(p, lanes, static_cast<size_t>(n) * sizeof(float));
  }
  float sum() const {
    const float32x4_t s = vaddq_f32(low, high);
    const float32x2_t t = vadd_f32(vget_low_f32(s), vget_high_f32(s));
    return vget_lane_f32(t, 0) + vget_lane_f32(t, 1);
  }
  float max_lane() const {
    float32x4_t s = larger(low, high);
    s = larger(s, vextq_f32(s, s, 2));
    return vgetq_lane_f32(larger(s, vextq_f32(s, s, 1)), 0);
  }
};

inline Vec operator+(Vec a, Vec b) { return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)}; }
inline Vec operator-(Vec a, Vec b) { return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)}; }
inline Vec operator*(Vec a, Vec b) { return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)}; }
inline Vec operator/(Vec a, Vec b) { return {vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)}; }
inline Vec fnma(Vec a, Vec b, Vec c) {
  return {vfmsq_f32(c.low, a.low, b.low), vfmsq_f32(c.high, a.high, b.high)};
}
inline Vec min(Vec a, Vec b) { return {smaller(a.low, b.low), smaller(a.high, b.high)}; }
inline Vec max(Vec a, Vec b) { return {larger(a.low, b.low), larger(a.high, b.high)}; }
inline Vec sqrt(Vec a) { return {vsqrtq_f32(a.low), vsqrtq_f32(a.high)}; }
// The bits alone: an instruction of arithmetic would flush denormals, and x86-64 keeps them.
inline float32x4_t abs(float32x4_t a) {
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(a), vdupq_n_u32(0x80000000u)));
}
inline Vec abs(Vec a) { return {abs(a.low), abs(a.high)}; }
inline Vec round(Vec a) { return {vrndnq_f32(a.low), vrndnq_f32(a.high)}; }
inline float32x4_t pow2(float32x4_t n) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23));
}
inline Vec pow2(Vec n) { return {pow2(n.low), pow2(n.high)}; }
inline float32x4_t exponent(float32x4_t a) {
  const int32x4_t biased = vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_f32(a), 23));
  return vcvtq_f32_s32(vsubq_s32(biased, vdupq_n_s32(127)));
}
inline Vec exponent(Vec a) { return {exponent(a.low), exponent(a.high)}; }
inline float32x4_t mantissa(float32x4_t a) {
  const uint32x4_t m = vandq_u32(vreinterpretq_u32_f32(a), vdupq_n_u32(0x007fffff));
  return vreinterpretq_f32_u32(vorrq_u32(m, vdupq_n_u32(0x3f800000)));
}
inline Vec mantissa(Vec a) { return {mantissa(a.low), mantissa(a.high)}; }
inline Mask less(Vec a, Vec b) { return {vcltq_f32(a.low, b.low), vcltq_f32(a.high, b.high)}; }
inline Vec select(Mask m, Vec a, Vec b) {
  return {vbslq_f32(m.low, a.low, b.low), vbslq_f32(m.high, a.high, b.high)};
}

}  // namespace mudd::MUDD_ISA
