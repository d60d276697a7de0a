// Chains c = fma(a, b, c) on x86-64 without the instruction, for tiles of 4 x 8 sums: the bits of the instruction
// at six instructions for two sums, where fused.h needs more than twelve.
//
// A product of two floats is exact in double. Their sum s is rounded to the 24 bits of a float by adding half of a
// last place to its bits and clearing the 29 bits below, also across binades and for infinities and NaN. What
// differs from one exact rounding is avoided, or found, and then the caller computes the tile by fused.h:
// - s is halfway between two floats, exactly (a tie goes to the even float) or because it was rounded to double.
// Then
//   the 29 bits are zero after the addition. No other s is rounded to the wrong side, for both roundings are
//   monotone. Numbers of few bits (1, 0.5) make ties often: their steps are computed as in fused.h.
// - A product or sum below the smallest float. Numbers of A and sums carry the factor 2^-896, which makes the
// smallest
//   normal float the smallest normal double: FTZ flushes what it flushes in float, and the processor reports it.
// - Overflow. Numbers of A below 2^51 and of B below 2^52 give products below 2^103, half of a last place of sums
// near
//   2^128: a sum past the largest float stays there until it is converted. Larger numbers are written as NaN, and
//   no chain gets rid of a NaN.
#pragma once

#include "mudd/base/simd/fused.h"

#if defined(MUDD_VEC_PORTABLE) && defined(MUDD_FUSED_IN_DOUBLE)
#define MUDD_CHAINS

namespace mudd::MUDD_ISA {

constexpr int kChainRows = 4, kChainColumns = 8;
constexpr int64_t kChainDepth = 128;                                       // steps, at most
constexpr int64_t kLeftStep = 2 * kChainRows, kRightStep = kChainColumns;  // doubles of a step
constexpr double kChainScale = 0x1p-896;

// A set of steps.
struct Steps {
  uint64_t bits[kChainDepth / 64] = {};

  void add(int64_t i, bool is_in = true) { bits[i / 64] |= static_cast<uint64_t>(is_in) << i % 64; }
  Steps operator|(const Steps& s) const { return {{bits[0] | s.bits[0], bits[1] | s.bits[1]}}; }
  int count() const { return std::popcount(bits[0]) + std::popcount(bits[1]); }
  // The first one from i on, or kChainDepth.
  int64_t next(int64_t i) const {
    for (; i < kChainDepth; i = (i / 64 + 1) * 64)
      if (const uint64_t left = bits[i / 64] >> i % 64) return i + std::countr_zero(left);
    return kChainDepth;
  }
};

// A bit for each number that is not zero and has at most 12 bits.
MUDD_INLINE int of_few_bits(__m128 x) {
  const __m128i tail = _mm_and_si128(_mm_castps_si128(x), _mm_set1_epi32(0xfff));
  const __m128i few = _mm_cmpeq_epi32(tail, _mm_setzero_si128());
  return _mm_movemask_ps(_mm_and_ps(_mm_castsi128_ps(few), _mm_cmpneq_ps(x, _mm_setzero_ps())));
}

// A NaN in place of each number of two whose magnitude is not below the limit. Its lowest 29 bits are zero, as
// those of floats are: rounding adds to them.
MUDD_INLINE __m128d below_limit(__m128d x, double limit) {
  const __m128d large = _mm_cmpnlt_pd(_mm_andnot_pd(_mm_set1_pd(-0.0), x), _mm_set1_pd(limit));
  return _mm_or_pd(_mm_and_pd(large, _mm_set1_pd(__builtin_nan(""))), x);
}

// Four numbers of A, each twice, `step` doubles apart.
MUDD_INLINE void write_left(__m128 x, double* to, int64_t step) {
  const __m128d scale = _mm_set1_pd(kChainScale);
  const __m128d low = below_limit(_mm_mul_pd(low_doubles(x), scale), 0x1p51 * kChainScale);
  const __m128d high = below_limit(_mm_mul_pd(high_doubles(x), scale), 0x1p51 * kChainScale);
  _mm_store_pd(to, _mm_unpacklo_pd(low, low));
  _mm_store_pd(to + step, _mm_unpackhi_pd(low, low));
  _mm_store_pd(to + 2 * step, _mm_unpacklo_pd(high, high));
  _mm_store_pd(to + 3 * step, _mm_unpackhi_pd(high, high));
}

// Numbers [0, k) of a row of A; of its four numbers of step i, that of the row is at to[i * kLeftStep].
inline void write_left_row(const float* from, int64_t k, double* to, Steps* few) {
  for (int64_t i = 0; i < k; i += 4, to += 4 * kLeftStep) {
    __m128 x = _mm_setzero_ps();
    __builtin_memcpy(&x, from + i, static_cast<size_t>(k - i < 4 ? k - i : 4) * sizeof(float));
    write_left(x, to, kLeftStep);
    few->bits[i / 64] |= static_cast<uint64_t>(of_few_bits(x)) << i % 64;
  }
}

// The four numbers of A of one step, and four numbers of a row of B.
MUDD_INLINE void write_left_step(const float* from, int64_t step, double* to, Steps* few) {
  const __m128 x = _mm_loadu_ps(from);
  write_left(x, to + step * kLeftStep, 2);
  few->add(step, of_few_bits(x));
}
MUDD_INLINE void write_right(const float* from, int64_t step, double* to, Steps* few) {
  const __m128 x = _mm_loadu_ps(from);
  _mm_store_pd(to + step * kRightStep, below_limit(low_doubles(x), 0x1p52));
  _mm_store_pd(to + step * kRightStep + 2, below_limit(high_doubles(x), 0x1p52));
  few->add(step, of_few_bits(x));
}

// Two rows of a step, four columns. In assembler: gcc 12 spills sums, which costs a fifth. `least`: the least of
// the 29 bits of all sums so far, in words, where 0x7fff stands for more.
MUDD_INLINE void add_two_rows(const double* a, const double* b, __m128d& c0, __m128d& c1, __m128d& c2, __m128d& c3,
                              __m128i& least, __m128i half, __m128i above, __m128i below) {
  __m128d p0, p1, p2, p3;
  asm("movapd %[a0], %[p0]\n\tmovapd %[a1], %[p2]\n\tmovapd %[p0], %[p1]\n\tmovapd %[p2], %[p3]\n\t"
      "mulpd %[b0], %[p0]\n\tmulpd %[b1], %[p1]\n\tmulpd %[b0], %[p2]\n\tmulpd %[b1], %[p3]\n\t"
      "addpd %[p0], %[c0]\n\taddpd %[p1], %[c1]\n\taddpd %[p2], %[c2]\n\taddpd %[p3], %[c3]\n\t"
      "paddq %[half], %[c0]\n\tpaddq %[half], %[c1]\n\tpaddq %[half], %[c2]\n\tpaddq %[half], %[c3]\n\t"
      "movapd %[c0], %[p0]\n\tmovapd %[c2], %[p2]\n\t"
      "shufps $0x88, %[c1], %[p0]\n\tshufps $0x88, %[c3], %[p2]\n\t"
      "pand %[above], %[c0]\n\tpand %[above], %[c1]\n\tpand %[above], %[c2]\n\tpand %[above], %[c3]\n\t"
      "pand %[below], %[p0]\n\tpand %[below], %[p2]\n\tpackssdw %[p2], %[p0]\n\tpminsw %[p0], %[least]"
      : [c0] "+x"(c0), [c1] "+x"(c1), [c2] "+x"(c2), [c3] "+x"(c3), [least] "+x"(least), [p0] "=&x"(p0),
        [p1] "=&x"(p1), [p2] "=&x"(p2), [p3] "=&x"(p3)
      : [a0] "m"(*reinterpret_cast<const __m128d*>(a)), [a1] "m"(*reinterpret_cast<const __m128d*>(a + 2)),
        [b0] "m"(*reinterpret_cast<const __m128d*>(b)), [b1] "m"(*reinterpret_cast<const __m128d*>(b + 2)),
        [half] "x"(half), [above] "x"(above), [below] "x"(below));
}

// k steps: sums[2 r] and sums[2 r + 1] are row r.
__attribute__((noinline)) inline void add_steps(int64_t k, const double* a, const double* b, __m128d* sums,
                                                __m128i* so_far) {
  __m128d c0 = sums[0], c1 = sums[1], c2 = sums[2], c3 = sums[3];  // an array would be kept in memory
  __m128d c4 = sums[4], c5 = sums[5], c6 = sums[6], c7 = sums[7];
  __m128i least = *so_far;
  const __m128i half = _mm_set1_epi64x(kHalfFloat), above = _mm_set1_epi64x(~static_cast<int64_t>(kBelowFloat));
  const __m128i below = _mm_set1_epi32(static_cast<int32_t>(kBelowFloat));
  for (; k > 0; --k, a += kLeftStep, b += kRightStep) {
    add_two_rows(a, b, c0, c1, c2, c3, least, half, above, below);
    add_two_rows(a + 4, b, c4, c5, c6, c7, least, half, above, below);
  }
  sums[0] = c0, sums[1] = c1, sums[2] = c2, sums[3] = c3;
  sums[4] = c4, sums[5] = c5, sums[6] = c6, sums[7] = c7;
  *so_far = least;
}

// One step, also with sums that are halfway.
inline void add_exact_step(const double* a, const double* b, __m128d* sums) {
  for (int i = 0; i < 2 * kChainRows; ++i) {
    const __m128d p = _mm_mul_pd(_mm_load_pd(a + i / 2 * 2), _mm_load_pd(b + i % 2 * 2));
    const __m128i s = _mm_castpd_si128(move_off_middle(p, sums[i], _mm_add_pd(p, sums[i])));
    const __m128i odd = _mm_and_si128(_mm_srli_epi64(s, 29), _mm_set1_epi64x(1));  // a tie goes to the even float
    const __m128i up = _mm_add_epi64(_mm_add_epi64(s, _mm_set1_epi64x(kHalfFloat - 1)), odd);
    sums[i] = _mm_castsi128_pd(_mm_and_si128(up, _mm_set1_epi64x(~static_cast<int64_t>(kBelowFloat))));
  }
}

// c[r, j] = the chain from start[r, j] (null: 0) over steps [begin, end) of A (4 rows) and of 4 or 8 columns of B
// (few[0] is of the first four). False where fused.h has to compute it.
inline bool sum_tile(int64_t begin, int64_t end, const double* a, const Steps& left_few, const double* b,
                     const Steps* few, int columns, const float* start, int64_t start_step, float* c) {
  constexpr uint32_t kUnderflow = 0x10;
  const __m128d scale = _mm_set1_pd(kChainScale), back = _mm_set1_pd(1 / kChainScale);
  if (const uint32_t state = _mm_getcsr(); state & kUnderflow) _mm_setcsr(state & ~kUnderflow);
  __m128d unknown = _mm_setzero_pd();
  __m128i least = _mm_set1_epi16(0x7fff);
  for (int j = 0; j < columns; j += 4) {
    const Steps exact = left_few | few[j / 4];
    if (exact.count() > (end - begin) / 4 + 4) return false;
    __m128d sums[2 * kChainRows] = {};
    for (int r = 0; start && r < kChainRows; ++r) {
      const __m128 from = _mm_loadu_ps(start + r * start_step + j);
      sums[2 * r] = _mm_mul_pd(low_doubles(from), scale);
      sums[2 * r + 1] = _mm_mul_pd(high_doubles(from), scale);
    }
    for (int64_t i = begin; i < end; ++i) {
      const int64_t next = exact.next(i), last = next < end ? next : end;
      add_steps(last - i, a + i * kLeftStep, b + i * kRightStep + j, sums, &least);
      i = last;
      if (i < end) add_exact_step(a + i * kLeftStep, b + i * kRightStep + j, sums);
    }
    for (int r = 0; r < kChainRows; ++r) {
      const __m128d low = sums[2 * r], high = sums[2 * r + 1];
      unknown = _mm_or_pd(unknown, _mm_cmpunord_pd(low, high));
      _mm_storeu_ps(c + r * kChainColumns + j,
                    _mm_movelh_ps(_mm_cvtpd_ps(_mm_mul_pd(low, back)), _mm_cvtpd_ps(_mm_mul_pd(high, back))));
    }
  }
  return !any(_mm_cmpeq_epi16(least, _mm_setzero_si128())) && !(_mm_getcsr() & kUnderflow) &&
         !_mm_movemask_pd(unknown);
}

}  // namespace mudd::MUDD_ISA
#endif
