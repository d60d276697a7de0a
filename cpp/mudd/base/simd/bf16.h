// bf16 values in memory as Vec: loaded as fp32, rounded to nearest even on store (NaN becomes the quiet
// 0x7fc0). Integer code at every level: the conversions of AVX512-bf16 would flush denormals.
#pragma once

#include <cstring>

#include "mudd/base/simd/rows.h"
#include "mudd/base/types.h"

namespace mudd::MUDD_ISA {

#if defined(MUDD_VEC_AVX512)

inline Vec load(const bf16* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}

// Return lanes whose upper halves are the rounded values.
inline __m512i rounded_bits(Vec v) {
  const __m512i bits = _mm512_castps_si512(v.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(v.v, v.v, _CMP_UNORD_Q);
  return _mm512_mask_blend_epi32(nan, sum, _mm512_set1_epi32(0x7fc00000));
}
inline void store(bf16* p, Vec v) {
  const __m256i half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded_bits(v), 16));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), half);
}
inline Vec round_bf16(Vec v) {
  return {_mm512_castsi512_ps(_mm512_and_si512(rounded_bits(v), _mm512_set1_epi32(-65536)))};
}
inline Vec cut_bf16(Vec v, int32_t offset) {
  const __m512i sum = _mm512_add_epi32(_mm512_castps_si512(v.v), _mm512_set1_epi32(offset));
  return {_mm512_castsi512_ps(_mm512_and_si512(sum, _mm512_set1_epi32(-65536)))};
}

inline Vec pairs(Vec low, Vec high) {
  const __m512i l = _mm512_srli_epi32(_mm512_castps_si512(low.v), 16);
  return {_mm512_castsi512_ps(_mm512_or_si512(l, _mm512_castps_si512(high.v)))};
}
inline Vec pairs(const bf16* low, const bf16* high) {
  const __m512i l = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(low)));
  const __m512i h = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(high)));
  return {_mm512_castsi512_ps(_mm512_or_si512(l, _mm512_slli_epi32(h, 16)))};
}
inline Vec low_of(Vec word) { return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(word.v), 16))}; }
inline Vec high_of(Vec word) {
  return {_mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(word.v), _mm512_set1_epi32(-65536)))};
}

#elif defined(MUDD_VEC_AVX2)

inline Vec load(const bf16* p) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16))};
}

// Return lanes whose upper halves are the rounded values.
inline __m256i rounded_bits(Vec v) {
  const __m256i bits = _mm256_castps_si256(v.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v.v, v.v, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(sum, _mm256_set1_epi32(0x7fc00000), nan);
}
inline void store(bf16* p, Vec v) {
  const __m256i half = _mm256_srli_epi32(rounded_bits(v), 16);
  const __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(half, half), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(both));
}
inline Vec round_bf16(Vec v) {
  return {_mm256_castsi256_ps(_mm256_and_si256(rounded_bits(v), _mm256_set1_epi32(-65536)))};
}
inline Vec cut_bf16(Vec v, int32_t offset) {
  const __m256i sum = _mm256_add_epi32(_mm256_castps_si256(v.v), _mm256_set1_epi32(offset));
  return {_mm256_castsi256_ps(_mm256_and_si256(sum, _mm256_set1_epi32(-65536)))};
}

inline Vec pairs(Vec low, Vec high) {
  const __m256i l = _mm256_srli_epi32(_mm256_castps_si256(low.v), 16);
  return {_mm256_castsi256_ps(_mm256_or_si256(l, _mm256_castps_si256(high.v)))};
}
inline Vec low_of(Vec word) { return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(word.v), 16))}; }
inline Vec high_of(Vec word) {
  // The mask stays in memory: the GEMM tiles leave no register for it.
  alignas(32) static constexpr int32_t kHigh[8] = {-65536, -65536, -65536, -65536, -65536, -65536, -65536, -65536};
  Vec high;
  __asm__("vandps %2, %1, %0" : "=x"(high.v) : "x"(word.v), "m"(kHigh));
  return high;
}

#elif defined(MUDD_VEC_NEON)

inline Vec from_bits(uint32x4_t low, uint32x4_t high) {
  return {vreinterpretq_f32_u32(low), vreinterpretq_f32_u32(high)};
}
inline uint32x4_t bits_of(float32x4_t a) { return vreinterpretq_u32_f32(a); }

inline Vec load(const bf16* p) {
  const uint16x8_t half = vld1q_u16(&p->bits);
  return from_bits(vshll_n_u16(vget_low_u16(half), 16), vshll_n_u16(vget_high_u16(half), 16));
}

// Return lanes whose upper halves are the rounded values.
inline uint32x4_t rounded_bits(float32x4_t v) {
  const uint32x4_t bits = bits_of(v), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t sum = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
  return vbslq_u32(vceqq_f32(v, v), sum, vdupq_n_u32(0x7fc00000));
}
inline void store(bf16* p, Vec v) {
  const uint16x8_t low = vreinterpretq_u16_u32(rounded_bits(v.low));
  const uint16x8_t high = vreinterpretq_u16_u32(rounded_bits(v.high));
  vst1q_u16(&p->bits, vuzp2q_u16(low, high));
}
inline Vec upper_halves(uint32x4_t low, uint32x4_t high) {
  const uint32x4_t upper = vdupq_n_u32(0xffff0000u);
  return from_bits(vandq_u32(low, upper), vandq_u32(high, upper));
}
inline Vec round_bf16(Vec v) { return upper_halves(rounded_bits(v.low), rounded_bits(v.high)); }
inline Vec cut_bf16(Vec v, int32_t offset) {
  const uint32x4_t add = vdupq_n_u32(static_cast<uint32_t>(offset));
  return upper_halves(vaddq_u32(bits_of(v.low), add), vaddq_u32(bits_of(v.high), add));
}

inline Vec pairs(Vec low, Vec high) {
  return from_bits(vsriq_n_u32(bits_of(high.low), bits_of(low.low), 16),
                   vsriq_n_u32(bits_of(high.high), bits_of(low.high), 16));
}
inline Vec low_of(Vec word) {
  return from_bits(vshlq_n_u32(bits_of(word.low), 16), vshlq_n_u32(bits_of(word.high), 16));
}
inline Vec high_of(Vec word) { return upper_halves(bits_of(word.low), bits_of(word.high)); }

#else

inline Vec load(const bf16* p) {
  Ints wide;
  for (int i = 0; i < Vec::kLanes; ++i) wide[i] = static_cast<int32_t>(uint32_t{p[i].bits} << 16);
  return from_bits(wide);
}

// Return lanes whose upper halves are the rounded values.
inline Ints rounded_bits(Vec v) {
  const Ints bits = bits_of(v), odd = (bits >> 16) & 1;
  typedef uint32_t Unsigned __attribute__((vector_size(sizeof(Ints))));
  const Ints sum =
      reinterpret_cast<Ints>(reinterpret_cast<Unsigned>(bits) + 0x7fffu + reinterpret_cast<Unsigned>(odd));
  const Ints nan = (bits & 0x7fffffff) > 0x7f800000;
  return nan ? Ints{} + 0x7fc00000 : sum;
}
inline void store(bf16* p, Vec v) {
  const Ints bits = rounded_bits(v);
  uint16_t half[Vec::kLanes];
  for (int i = 0; i < Vec::kLanes; ++i) half[i] = static_cast<uint16_t>(static_cast<uint32_t>(bits[i]) >> 16);
  std::memcpy(p, half, sizeof half);
}
inline Vec round_bf16(Vec v) { return from_bits(rounded_bits(v) & -65536); }
inline Vec cut_bf16(Vec v, int32_t offset) {
  typedef uint32_t Unsigned __attribute__((vector_size(sizeof(Ints))));
  const Unsigned sum = reinterpret_cast<Unsigned>(bits_of(v)) + static_cast<uint32_t>(offset);
  return from_bits(reinterpret_cast<Ints>(sum) & -65536);
}

inline Vec pairs(Vec low, Vec high) { return from_bits(((bits_of(low) >> 16) & 0xffff) | bits_of(high)); }
inline Vec low_of(Vec word) { return from_bits(bits_of(word) << 16); }
inline Vec high_of(Vec word) { return from_bits(bits_of(word) & -65536); }

#endif

#if !defined(MUDD_VEC_AVX512)
inline Vec pairs(const bf16* low, const bf16* high) { return pairs(load(low), load(high)); }
#endif

// cut_bf16(v, offset) adds 0 to 65535 to the bits of v and cuts the lower half: a fraction of 1 / 65536 ulp of
// bf16 per unit of the offset, towards larger magnitudes. NaN and infinity stay. pairs(low, high) combines two
// bf16 values, from fp32 or memory, to 32 bits; low_of and high_of return them as fp32.

// Store two adjacent vectors.
inline void store(bf16* p, Vec first, Vec second) {
#if defined(MUDD_VEC_AVX2)
  const __m256i a = _mm256_srli_epi32(rounded_bits(first), 16), b = _mm256_srli_epi32(rounded_bits(second), 16);
  const __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), both);
#else
  store(p, first);
  store(p + Vec::kLanes, second);
#endif
}

// Load n elements from p; other lanes are zero.
inline Vec load(const bf16* p, int n) {
  if (n == Vec::kLanes) return load(p);
  bf16 some[Vec::kLanes] = {};
  std::memcpy(some, p, static_cast<size_t>(n) * sizeof(bf16));
  return load(some);
}

inline void store(bf16* p, Vec v, int n) {
  if (n == Vec::kLanes) return store(p, v);
  bf16 all[Vec::kLanes];
  store(all, v);
  std::memcpy(p, all, static_cast<size_t>(n) * sizeof(bf16));
}

// Overloads for whole vectors of either type, and for types known only at run time.
inline Vec load(const float* p) { return Vec::load(p); }
inline void store(float* p, Vec v) { v.store(p); }
inline Vec load(ConstCells c, int64_t at, int n) {
  return c.type == DType::bf16 ? load(c.b16() + at, n) : load(c.f32() + at, n);
}
inline void store(Cells c, int64_t at, Vec v, int n) {
  if (c.type == DType::bf16) store(c.b16() + at, v, n);
  else store(c.f32() + at, v, n);
}

}  // namespace mudd::MUDD_ISA
