// a b + c with one rounding, without the fma instruction. The product of two floats is exact in double; if the
// sum in double was rounded to the middle between two floats, it is moved off the middle. The conversion to
// float then rounds like a fused instruction; below 2^-126 only with the FTZ mode of workers. No function of
// libm.
#pragma once

#include <bit>
#include <cstdint>

#include "mudd/base/simd/inline.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace mudd::MUDD_ISA {

// Bit 28 of a double is half of a float's last place.
constexpr uint64_t kBelowFloat = 0x1fffffffu, kHalfFloat = 0x10000000u;

// Return the sum of p and c; if it is halfway between two floats, move it one last place towards the exact sum.
inline double sum_off_middle(double p, double c) {
  const double sum = p + c;
  const uint64_t bits = std::bit_cast<uint64_t>(sum);
  if ((bits & kBelowFloat) != kHalfFloat) return sum;
  const double part = sum - p, error = (p - (sum - part)) + (c - part);  // exact (Knuth)
  if (error == 0) return sum;
  return std::bit_cast<double>((error < 0) == (sum < 0) ? bits + 1 : bits - 1);
}

inline float fused_multiply_add(float a, float b, float c) {
#if defined(__FP_FAST_FMAF)
  return __builtin_fmaf(a, b, c);
#else
  return static_cast<float>(
      sum_off_middle(static_cast<double>(a) * static_cast<double>(b), static_cast<double>(c)));
#endif
}

#if defined(__SSE2__) && !defined(__FP_FAST_FMAF)
#define MUDD_FUSED_IN_DOUBLE

// The same as sum_off_middle for two lanes with a given sum.
MUDD_INLINE __m128d move_off_middle(__m128d p, __m128d c, __m128d sum) {
  const __m128d part = _mm_sub_pd(sum, p);
  const __m128d error = _mm_add_pd(_mm_sub_pd(p, _mm_sub_pd(sum, part)), _mm_sub_pd(c, part));
  const __m128i bits = _mm_castpd_si128(sum);
  const __m128i below = _mm_and_si128(bits, _mm_set1_epi64x(kBelowFloat));
  const __m128i half = _mm_shuffle_epi32(_mm_cmpeq_epi32(below, _mm_set1_epi64x(kHalfFloat)), 0xa0);
  const __m128i apart = _mm_castpd_si128(_mm_cmpneq_pd(error, _mm_setzero_pd()));
  const __m128i signs = _mm_castpd_si128(_mm_xor_pd(error, sum));
  const __m128i step = _mm_or_si128(_mm_shuffle_epi32(_mm_srai_epi32(signs, 31), 0xf5), _mm_set1_epi64x(1));
  return _mm_castsi128_pd(_mm_add_epi64(bits, _mm_and_si128(_mm_and_si128(half, apart), step)));
}

MUDD_INLINE __m128d low_doubles(__m128 x) { return _mm_cvtps_pd(x); }
MUDD_INLINE __m128d high_doubles(__m128 x) { return _mm_cvtps_pd(_mm_movehl_ps(x, x)); }

// Return all bits of each of the four sums that is halfway between two floats.
MUDD_INLINE __m128i middles(__m128d low, __m128d high) {
  const __m128i words = _mm_castps_si128(_mm_shuffle_ps(_mm_castpd_ps(low), _mm_castpd_ps(high), 0x88));
  const __m128i below = _mm_and_si128(words, _mm_set1_epi32(static_cast<int32_t>(kBelowFloat)));
  return _mm_cmpeq_epi32(below, _mm_set1_epi32(static_cast<int32_t>(kHalfFloat)));
}
MUDD_INLINE bool any(__m128i lanes) { return __builtin_expect(_mm_movemask_epi8(lanes) != 0, false); }

MUDD_INLINE __m128 fused_multiply_add(__m128 a, __m128 b, __m128 c) {
  const __m128d low_p = _mm_mul_pd(low_doubles(a), low_doubles(b));
  const __m128d high_p = _mm_mul_pd(high_doubles(a), high_doubles(b));
  const __m128d low_c = low_doubles(c), high_c = high_doubles(c);
  __m128d low = _mm_add_pd(low_p, low_c), high = _mm_add_pd(high_p, high_c);
  if (any(middles(low, high))) {
    low = move_off_middle(low_p, low_c, low);
    high = move_off_middle(high_p, high_c, high);
  }
  return _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
}

#endif

// The same for vectors of any length.
template <class Lanes>
MUDD_INLINE Lanes fused_lanes(Lanes a, Lanes b, Lanes c) {
#if defined(MUDD_FUSED_IN_DOUBLE)
  if constexpr (sizeof(Lanes) == sizeof(__m128)) return fused_multiply_add(__m128(a), __m128(b), __m128(c));
#endif
  for (unsigned i = 0; i < sizeof(Lanes) / sizeof(float); ++i) c[i] = fused_multiply_add(a[i], b[i], c[i]);
  return c;
}

}  // namespace mudd::MUDD_ISA
