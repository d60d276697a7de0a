// transpose(r): transposes the kLanes x kLanes block in the rows r[0], r[1], ... in registers.
#pragma once

#include "mudd/base/simd/vec.h"

namespace mudd::MUDD_ISA {

#if defined(MUDD_VEC_AVX512)

// Pairs of lanes, then pairs of pairs, then the four quarters of the register, twice.
inline void transpose(Vec (&r)[16]) {
  __m512 t[16], u[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i].v, r[i + 1].v);
    t[i + 1] = _mm512_unpackhi_ps(r[i].v, r[i + 1].v);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    u[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 a = _mm512_shuffle_f32x4(u[i], u[i + 4], 0x88), b = _mm512_shuffle_f32x4(u[i], u[i + 4], 0xdd);
    const __m512 c = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0x88);
    const __m512 d = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0xdd);
    r[i].v = _mm512_shuffle_f32x4(a, c, 0x88);
    r[i + 4].v = _mm512_shuffle_f32x4(b, d, 0x88);
    r[i + 8].v = _mm512_shuffle_f32x4(a, c, 0xdd);
    r[i + 12].v = _mm512_shuffle_f32x4(b, d, 0xdd);
  }
}

#elif defined(MUDD_VEC_AVX2)

inline void transpose(Vec (&r)[8]) {
  __m256 t[8], u[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i].v, r[i + 1].v);
    t[i + 1] = _mm256_unpackhi_ps(r[i].v, r[i + 1].v);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i].v = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    r[i + 4].v = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}

#elif defined(MUDD_VEC_NEON)

// Four rows of four.
inline void transpose(float32x4_t& a, float32x4_t& b, float32x4_t& c, float32x4_t& d) {
  const auto wide = [](float32x4_t x) { return vreinterpretq_f64_f32(x); };
  const float64x2_t t = wide(vtrn1q_f32(a, b)), u = wide(vtrn2q_f32(a, b));
  const float64x2_t v = wide(vtrn1q_f32(c, d)), w = wide(vtrn2q_f32(c, d));
  a = vreinterpretq_f32_f64(vtrn1q_f64(t, v));
  b = vreinterpretq_f32_f64(vtrn1q_f64(u, w));
  c = vreinterpretq_f32_f64(vtrn2q_f64(t, v));
  d = vreinterpretq_f32_f64(vtrn2q_f64(u, w));
}

inline void transpose(Vec (&r)[8]) {
  transpose(r[0].low, r[1].low, r[2].low, r[3].low);
  transpose(r[0].high, r[1].high, r[2].high, r[3].high);
  transpose(r[4].low, r[5].low, r[6].low, r[7].low);
  transpose(r[4].high, r[5].high, r[6].high, r[7].high);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const float32x4_t right = r[i].high;
    r[i].high = r[i + 4].low;
    r[i + 4].low = right;
  }
}

#else

inline void transpose(Vec (&r)[Vec::kLanes]) {
  for (int i = 0; i < Vec::kLanes; ++i)
    for (int j = i + 1; j < Vec::kLanes; ++j) {
      const float a = r[i].v[j];
      r[i].v[j] = r[j].v[i];
      r[j].v[i] = a;
    }
}

#endif

}  // namespace mudd::MUDD_ISA
