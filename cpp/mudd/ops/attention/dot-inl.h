// The unit that multiplies pairs of bf16 (vdpbf16ps or its emulation): fp32 q, k, v and dout are rounded to
// bf16, P and dS always; sums, softmax and saved statistics stay fp32.
#pragma once

#include "mudd/base/simd/dot_bf16.h"
#include "mudd/ops/attention/pack-inl.h"

namespace mudd::MUDD_ISA {
namespace {

struct Dot {
  static constexpr int kPer = 2, kDepth = 2, kReach = kStrip;
  static constexpr bool kPairsInPlace = true;
  struct Session {};
  static MUDD_INLINE Vec add(Vec a, Vec b, Vec c) { return dot_pairs(a, b, c); }
};

// Return the bf16 pairs of rows r and r + 1 of scores, from column j.
inline Vec score_pairs(const float* from, int64_t ld, int64_t r, int64_t rows, int64_t j) {
  const Vec even = r < rows ? round_bf16(Vec::load(from + r * ld + j)) : Vec::zero();
  return pairs(even, r + 1 < rows ? round_bf16(Vec::load(from + (r + 1) * ld + j)) : Vec::zero());
}

// Return n elements of a row from `at`, rounded to bf16.
inline Vec rounded(ConstCells row, int64_t at, int n) { return round_bf16(load(row, at, n)); }

inline void copy_words(Dot, ConstCells src, int64_t stride, int64_t n, int64_t dim, float, float* dst) {
  const int64_t wide = 2 * row_words<Dot>(dim);
  for (int64_t r = 0; r < n; ++r) {
    bf16* to = reinterpret_cast<bf16*>(dst) + r * wide;
    for (int64_t d = 0; d < wide; d += kL) {
      const int left = static_cast<int>(clamp(dim - d, 0, kL));
      store(to + d, left > 0 ? load(src, r * stride + d, left) : Vec::zero());
    }
  }
}

inline void pair_rows(Dot, ConstCells src, int64_t stride, int64_t n, int64_t dim, float, float* dst) {
  const int64_t width = round_up(dim);
  for (int64_t r = 0; r < n; r += 2)
    for (int64_t d = 0; d < dim; d += kL) {
      const int left = static_cast<int>(smaller(dim - d, kL));
      const Vec even = rounded(src, r * stride + d, left);
      const Vec odd = r + 1 < n ? rounded(src, (r + 1) * stride + d, left) : Vec::zero();
      pairs(even, odd).store(dst + r / 2 * width + d);
    }
}

// Set to[r / 2][j] to the pair (from[r][j], from[r + 1][j]) for the first `cols` columns; missing rows are
// zeros.
inline int64_t pair_scores(Dot, const float* from, int64_t ld, int64_t rows, int64_t cols, float* to) {
  for (int64_t r = 0; r < rows; r += 2)
    for (int64_t j = 0; j < cols; j += kL) score_pairs(from, ld, r, rows, j).store(to + r / 2 * ld + j);
  return ld;
}

}  // namespace
}  // namespace mudd::MUDD_ISA
