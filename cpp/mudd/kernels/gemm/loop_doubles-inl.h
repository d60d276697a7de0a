// The loop of a register tile at levels that compute a multiply-add in double (base/simd/fused.h). Sums are
// rounded to float at every step and kept in double; operands are converted once for a row of the tile.
#pragma once

#include "mudd/kernels/gemm/ends-inl.h"

namespace mudd::MUDD_ISA {
namespace {

// A row of the tile.
struct Doubles {
  __m128d d[4];

  explicit MUDD_INLINE Doubles(Pair x)
      : d{low_doubles(x.lo.v), high_doubles(x.lo.v), low_doubles(x.hi.v), high_doubles(x.hi.v)} {}

  MUDD_INLINE Pair rounded() const {
    return {{_mm_movelh_ps(_mm_cvtpd_ps(d[0]), _mm_cvtpd_ps(d[1]))},
            {_mm_movelh_ps(_mm_cvtpd_ps(d[2]), _mm_cvtpd_ps(d[3]))}};
  }
};

MUDD_INLINE __m128d as_float(__m128d x) { return _mm_cvtps_pd(_mm_cvtpd_ps(x)); }

// c += a b, rounded once.
MUDD_INLINE void add_product(Doubles& c, float a, const Doubles& b) {
  const __m128d v = _mm_set1_pd(static_cast<double>(a));
  const __m128d p0 = _mm_mul_pd(v, b.d[0]), p1 = _mm_mul_pd(v, b.d[1]);
  const __m128d p2 = _mm_mul_pd(v, b.d[2]), p3 = _mm_mul_pd(v, b.d[3]);
  __m128d s0 = _mm_add_pd(p0, c.d[0]), s1 = _mm_add_pd(p1, c.d[1]);
  __m128d s2 = _mm_add_pd(p2, c.d[2]), s3 = _mm_add_pd(p3, c.d[3]);
  if (any(_mm_or_si128(middles(s0, s1), middles(s2, s3)))) {
    s0 = move_off_middle(_mm_mul_pd(v, b.d[0]), c.d[0], s0),
    s1 = move_off_middle(_mm_mul_pd(v, b.d[1]), c.d[1], s1);
    s2 = move_off_middle(_mm_mul_pd(v, b.d[2]), c.d[2], s2),
    s3 = move_off_middle(_mm_mul_pd(v, b.d[3]), c.d[3], s3);
  }
  c.d[0] = as_float(s0), c.d[1] = as_float(s1), c.d[2] = as_float(s2), c.d[3] = as_float(s3);
}

// acc += a b, a(r, i) = a[r * row_step + i * DepthStep].
template <class Step, int DepthStep, size_t... R>
MUDD_INLINE void loop_doubles(std::index_sequence<R...>, Pair (&acc)[sizeof...(R)], int64_t k, const float* a,
                              int64_t row_step, const float* b) {
  Doubles sums[] = {Doubles(acc[R])...};
  for (int64_t i = 0; i < k; ++i) {
    const Doubles right(Step::read(b + i * Step::kRow));
    (add_product(sums[R], a[static_cast<int64_t>(R) * row_step + i * DepthStep], right), ...);
  }
  ((acc[R] = sums[R].rounded()), ...);
}

}  // namespace
}  // namespace mudd::MUDD_ISA
