// Chains c = fma(a, b, c) on x86-64 without the fma instruction, for tiles of 4 x 8 sums. The bits are those of
// the instruction, at six instructions for two sums; fused.h needs more than twelve.
//
// The product of two floats is exact in double. Their sum s is rounded to the 24 bits of a float: add half of a
// last place to its bits and clear the 29 bits below, also across binades and for infinities and NaN. Cases that
// differ from one exact rounding are excluded, or detected; then the caller computes the tile by fused.h:
// - s is halfway between two floats, exactly (a tie rounds to the even float) or after its rounding to double:
//   the 29 bits are zero after the addition. No other s is rounded to the wrong side, because both roundings are
//   monotone. Values of few bits (1, 0.5) make ties often: their steps are computed as in fused.h.
// - A product or sum below the smallest float. Values of A and sums have the factor 2^-896, so the smallest normal
//   float is the smallest normal double: FTZ flushes the same values as in float, and the processor reports it.
// - Overflow. Values of A below 2^51 and of B below 2^52 have products below 2^103, half of a last place of
//   sums near 2^128: a sum above the largest float stays there until it is converted. Larger values are replaced
//   by NaN, which stays in its chain.
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

  void add(int64_t i, bool is_in) { bits[i / 64] |= static_cast<uint64_t>(is_in) << i % 64; }
  Steps operator|(const Steps& s) const { return {{bits[0] | s.bits[0], bits[1] | s.bits[1]}}; }
  // Return the first one from i, or kChainDepth.
  int64_t next(int64_t i) const {
    for (; i < kChainDepth; i = (i / 64 + 1) * 64)
      if (const uint64_t left = bits[i / 64] >> i % 64) return i + std::countr_zero(left);
    return kChainDepth;
  }
};

// Return true if one of four values has at most 12 bits (zero too), or a magnitude at or above the limit.
MUDD_INLINE bool any_odd(__m128 x, float limit) {
  const __m128i tail = _mm_and_si128(_mm_castps_si128(x), _mm_set1_epi32(0xfff));
  const __m128 is_short = _mm_castsi128_ps(_mm_cmpeq_epi32(tail, _mm_setzero_si128()));
  const __m128 is_large = _mm_cmpnlt_ps(_mm_andnot_ps(_mm_set1_ps(-0.0f), x), _mm_set1_ps(limit));
  return any(_mm_castps_si128(_mm_or_ps(is_short, is_large)));
}
// Return a bit for each nonzero value of at most 12 bits. Write NaN instead of large values, `copies` times at
// to[i * step]; its lowest 29 bits are zero, as for floats, so rounding does not carry out of it.
inline uint64_t mark_odd(__m128 numbers, float limit, double* to, int64_t step, int copies) {
  float x[4];
  _mm_storeu_ps(x, numbers);
  uint64_t is_short = 0;
  for (int i = 0; i < 4; ++i) {
    if ((std::bit_cast<uint32_t>(x[i]) & 0xfff) == 0 && x[i] != 0) is_short |= uint64_t{1} << i;
    for (int n = 0; n < copies; ++n)
      if (!(x[i] < limit && x[i] > -limit)) to[i * step + n] = __builtin_nan("");
  }
  return is_short;
}

// Write four values of A, each twice, `step` doubles apart, or of B. Return which of them are short.
MUDD_INLINE uint64_t write_left(__m128 x, double* to, int64_t step) {
  const __m128d scale = _mm_set1_pd(kChainScale);
  const __m128d low = _mm_mul_pd(low_doubles(x), scale), high = _mm_mul_pd(high_doubles(x), scale);
  _mm_store_pd(to, _mm_unpacklo_pd(low, low));
  _mm_store_pd(to + step, _mm_unpackhi_pd(low, low));
  _mm_store_pd(to + 2 * step, _mm_unpacklo_pd(high, high));
  _mm_store_pd(to + 3 * step, _mm_unpackhi_pd(high, high));
  return any_odd(x, 0x1p51f) ? mark_odd(x, 0x1p51f, to, step, 2) : 0;
}
MUDD_INLINE uint64_t write_right(__m128 x, double* to) {
  _mm_store_pd(to, low_doubles(x));
  _mm_store_pd(to + 2, high_doubles(x));
  return any_odd(x, 0x1p52f) ? mark_odd(x, 0x1p52f, to, 1, 1) : 0;
}

// Convert elements [0, k) of a row of A; the row's element of step i is at to[i * kLeftStep].
inline void write_left_row(const float* from, int64_t k, double* to, Steps* exact) {
  int64_t i = 0;
  for (; i + 4 <= k; i += 4)
    exact->bits[i / 64] |= write_left(_mm_loadu_ps(from + i), to + i * kLeftStep, kLeftStep) << i % 64;
  if (i == k) return;
  alignas(16) float last[4] = {};
  for (int64_t j = i; j < k; ++j) last[j - i] = from[j];
  exact->bits[i / 64] |= write_left(_mm_load_ps(last), to + i * kLeftStep, kLeftStep) << i % 64;
}

// Convert the four elements of A of one step, and four elements of a row of B.
MUDD_INLINE void write_left_step(const float* from, int64_t step, double* to, Steps* exact) {
  exact->add(step, write_left(_mm_loadu_ps(from), to + step * kLeftStep, 2) != 0);
}
MUDD_INLINE void write_right_step(const float* from, int64_t step, double* to, Steps* exact) {
  exact->add(step, write_right(_mm_loadu_ps(from), to + step * kRightStep) != 0);
}

// Compute two rows of a step, four columns. In assembly: gcc 12 spills sums, which costs 20 %. `least`: the
// minimum of the 29 bits of all sums so far, in 16 bits with saturation (0x7fff).
MUDD_INLINE void add_two_rows(const double* a, const double* b, __m128d& c0, __m128d& c1, __m128d& c2, __m128d& c3,
                              __m128i& least, __m128i half, __m128i above, __m128i below) {
  __m128d p0, p1, p2, p3;
  asm volatile(
      "movapd %[a0], %[p0]\n\tmovapd %[a1], %[p2]\n\tmovapd %[p0], %[p1]\n\tmovapd %[p2], %[p3]\n\t"
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

// Run k steps: sums[2 r] and sums[2 r + 1] are row r. Return true if none was halfway.
__attribute__((noinline)) inline bool add_steps(int64_t k, const double* a, const double* b, __m128d* sums) {
  __m128d c0 = sums[0], c1 = sums[1], c2 = sums[2], c3 = sums[3];  // an array would be kept in memory
  __m128d c4 = sums[4], c5 = sums[5], c6 = sums[6], c7 = sums[7];
  __m128i least = _mm_set1_epi16(0x7fff);
  const __m128i half = _mm_set1_epi64x(kHalfFloat), above = _mm_set1_epi64x(~static_cast<int64_t>(kBelowFloat));
  const __m128i below = _mm_set1_epi32(static_cast<int32_t>(kBelowFloat));
  for (; k > 0; --k, a += kLeftStep, b += kRightStep) {
    add_two_rows(a, b, c0, c1, c2, c3, least, half, above, below);
    add_two_rows(a + 4, b, c4, c5, c6, c7, least, half, above, below);
  }
  sums[0] = c0, sums[1] = c1, sums[2] = c2, sums[3] = c3;
  sums[4] = c4, sums[5] = c5, sums[6] = c6, sums[7] = c7;
  return !any(_mm_cmpeq_epi16(least, _mm_setzero_si128()));
}

// Run one step, also with sums that are halfway.
inline void add_exact_step(const double* a, const double* b, __m128d* sums) {
  for (int i = 0; i < 2 * kChainRows; ++i) {
    const __m128d p = _mm_mul_pd(_mm_load_pd(a + i / 2 * 2), _mm_load_pd(b + i % 2 * 2));
    const __m128i s = _mm_castpd_si128(move_off_middle(p, sums[i], _mm_add_pd(p, sums[i])));
    const __m128i odd = _mm_and_si128(_mm_srli_epi64(s, 29), _mm_set1_epi64x(1));  // a tie goes to the even float
    const __m128i up = _mm_add_epi64(_mm_add_epi64(s, _mm_set1_epi64x(kHalfFloat - 1)), odd);
    sums[i] = _mm_castsi128_pd(_mm_and_si128(up, _mm_set1_epi64x(~static_cast<int64_t>(kBelowFloat))));
  }
}

// Run k steps. If a sum is halfway, repeat them in ever smaller parts, the last ones step by step. `allowed`:
// the count of parts that may still fail.
inline void add_part(int64_t k, const double* a, const double* b, __m128d* sums, int& allowed) {
  __m128d before[2 * kChainRows];
  __builtin_memcpy(before, sums, sizeof before);
  if (add_steps(k, a, b, sums) || --allowed < 0) return;
  __builtin_memcpy(sums, before, sizeof before);
  if (k > 4) {
    add_part(k / 2, a, b, sums, allowed);
    return add_part(k - k / 2, a + k / 2 * kLeftStep, b + k / 2 * kRightStep, sums, allowed);
  }
  for (; k > 0; --k, a += kLeftStep, b += kRightStep) add_exact_step(a, b, sums);
}

// Run steps [begin, end), the ones in `exact` one by one. Return false if sums are halfway too often.
inline bool add_all_steps(int64_t begin, int64_t end, const Steps& exact, const double* a, const double* b,
                          __m128d* sums) {
  int allowed = static_cast<int>(end - begin) / 4 + 4;
  for (int64_t i = begin; i < end && allowed >= 0; ++i) {
    const int64_t next = exact.next(i), last = next < end ? next : end;
    add_part(last - i, a + i * kLeftStep, b + i * kRightStep, sums, allowed);
    if (last < end) --allowed, add_exact_step(a + last * kLeftStep, b + last * kRightStep, sums);
    i = last;
  }
  return allowed >= 0;
}

// Compute c[r, j] = the chain from start[r, j] (null: 0) over steps [begin, end) of A (4 rows) and of 4 or 8
// columns of B (exact[0]: of the first four). Return false if fused.h has to compute it.
inline bool sum_tile(int64_t begin, int64_t end, const double* a, const Steps& exact_left, const double* b,
                     const Steps* exact, int columns, const float* start, int64_t start_step, float* c) {
  constexpr uint32_t kUnderflow = 0x10;
  const __m128d scale = _mm_set1_pd(kChainScale), back = _mm_set1_pd(1 / kChainScale);
  __m128d unknown = _mm_setzero_pd();
  for (int j = 0; j < columns; j += 4) {
    __m128d sums[2 * kChainRows];
    for (int r = 0; r < kChainRows; ++r) {
      const __m128 from = start ? _mm_loadu_ps(start + r * start_step + j) : _mm_setzero_ps();
      sums[2 * r] = _mm_mul_pd(low_doubles(from), scale);
      sums[2 * r + 1] = _mm_mul_pd(high_doubles(from), scale);
    }
    if (!add_all_steps(begin, end, exact_left | exact[j / 4], a, b + j, sums)) return false;
    asm volatile("" : "+m"(sums));  // before the underflow flag is read
    for (int r = 0; r < kChainRows; ++r) {
      const __m128d low = sums[2 * r], high = sums[2 * r + 1];
      unknown = _mm_or_pd(unknown, _mm_cmpunord_pd(low, high));
      _mm_storeu_ps(c + r * kChainColumns + j,
                    _mm_movelh_ps(_mm_cvtpd_ps(_mm_mul_pd(low, back)), _mm_cvtpd_ps(_mm_mul_pd(high, back))));
    }
  }
  const uint32_t state = _mm_getcsr();
  if (state & kUnderflow) _mm_setcsr(state & ~kUnderflow);  // perhaps set by earlier work
  return !(state & kUnderflow) && !_mm_movemask_pd(unknown);
}

// Decides whether more tiles are worth a try: values that need fused.h (tiny ones, or of few bits) are frequent
// in other tiles of the same matrices too. One tile in eight may fail.
class TileCredit {
 public:
  bool spent() const { return left_ < 0; }
  bool count(bool good) {
    left_ = good ? left_ < 16 ? left_ + 1 : left_ : left_ - 8;
    return good;
  }

 private:
  int left_ = 16;
};

}  // namespace mudd::MUDD_ISA
#endif
