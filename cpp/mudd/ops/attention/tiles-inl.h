// The unit that multiplies pairs of bf16 in AMX tile registers (or their emulation): operands in the layout of
// dot-inl.h, padded with zeros to whole registers along the sum. A register of A has 16 rows of 16 pairs, so
// transposed operands are transposed back while their pairs are formed.
#pragma once

#include "mudd/base/simd/tiles.h"
#include "mudd/ops/attention/dot-inl.h"

namespace mudd::MUDD_ISA {
namespace {

struct Tiled {
  static constexpr int kPer = 2, kDepth = 2 * kTileWords, kReach = 128;  // more than a tile: all hidden keys
  static constexpr bool kPairsInPlace = false;
  using Session = TileSession;
};
static_assert(kL == kTileWords);

// Rows of dot-inl.h end at whole vectors, which are whole registers.
inline void copy_words(Tiled, ConstCells src, int64_t stride, int64_t n, int64_t dim, float factor, float* dst) {
  copy_words(Dot{}, src, stride, n, dim, factor, dst);
}

inline void pair_rows(Tiled, ConstCells src, int64_t stride, int64_t n, int64_t dim, float factor, float* dst) {
  const int64_t width = round_up(dim);
  pair_rows(Dot{}, src, stride, n, dim, factor, dst);
  for (int64_t i = words_of<Dot>(n) * width; i < words_of<Tiled>(n) * width; i += kL) Vec::zero().store(dst + i);
}

// Set to[j][r / 2] to the pair (from[r][j], from[r + 1][j]) for the first `cols` columns, up to whole vectors;
// missing rows are zeros.
inline int64_t pair_scores(Tiled, const float* from, int64_t ld, int64_t rows, int64_t cols, float* to) {
  const int64_t words = words_of<Tiled>(rows);
  for (int64_t w = 0; w < words; w += kL)
    for (int64_t j = 0; j < cols; j += kL) {
      Vec block[kL];
#pragma GCC unroll 16
      for (int i = 0; i < kL; ++i) block[i] = score_pairs(from, ld, 2 * (w + i), rows, j);
      transpose(block);
#pragma GCC unroll 16
      for (int i = 0; i < kL; ++i) block[i].store(to + (j + i) * words + w);
    }
  return words;
}

// Load `rows` rows of A into register T, through a zero-padded copy if they are fewer than a register has.
template <int T>
inline void load_rows(Tiles& t, const float* a, int64_t lda, int64_t rows) {
  if (rows >= kTileRows) return t.load<T>(a, lda);
  alignas(64) float some[kTileRows * kTileWords] = {};
  for (int64_t r = 0; r < rows; ++r) Vec::load(a + r * lda).store(some + r * kTileWords);
  t.load<T>(some, kTileWords);
}

// Compute `rows` x `cols` of C from (i, j), at most two by two registers 0 .. 3. The sum starts with C if C is
// added unscaled; a row factor is applied after the sum. whole: C may be read and written up to whole registers
// to the right.
template <Into kInto>
inline void tile_block(const Matmul& p, int64_t i, int64_t j, int64_t rows, int64_t cols, const Kept& part,
                       bool whole) {
  Tiles t;
  const bool low = rows > kTileRows, right = cols > kTileWords, scaled = kInto == Into::scaled_add;
  const bool direct = !scaled && rows % kTileRows == 0 && (whole || cols % kTileWords == 0);
  float* c = p.c + i * p.ldc + j;
  alignas(64) float sums[4 * kTileRows * kTileWords];
  float* at = direct ? c : sums;
  const int64_t ld = direct ? p.ldc : 2 * kTileWords;
  if (kInto == Into::add) {
    for (int64_t r = 0; !direct && r < rows; ++r)
      over_row(cols, [&](int64_t k, int n) { load(c + r * p.ldc + k, n).store(sums + r * ld + k); });
    load_sums(t, at, ld, low, right);
  } else {
    zero_sums(t);
  }
  for (int64_t s = part.s_begin; s < part.s_end; s += kTileWords) {
    const float *a = p.a + i * p.lda + s, *b = p.b + s * p.ldb + j;
    load_rows<4>(t, a, p.lda, rows);
    t.load<6>(b, p.ldb);
    t.dot<0, 4, 6>();
    if (right) t.load<7>(b + kTileWords, p.ldb), t.dot<1, 4, 7>();
    if (!low) continue;
    load_rows<5>(t, a + kTileRows * p.lda, p.lda, rows - kTileRows);
    t.dot<2, 5, 6>();
    if (right) t.dot<3, 5, 7>();
  }
  store_sums(t, at, ld, low, right);
  for (int64_t r = 0; !direct && r < rows; ++r) {
    const Vec scale = Vec::set1(scaled ? p.row_scale[i + r] : 1.0f);
    over_row(cols, [&](int64_t k, int n) {
      const Vec v = Vec::load(sums + r * ld + k);
      store(c + r * p.ldc + k, scaled ? fma(load(c + r * p.ldc + k, n), scale, v) : v, n);
    });
  }
}

template <bool kTurned, Trim kTrim, Into kInto>
__attribute__((noinline)) void matmul(Tiled, const Matmul& p) {
  constexpr int64_t kRows = 2 * kTileRows, kCols = 2 * kTileWords;
  for (int64_t i = 0; i < p.rows; i += kRows) {
    const int64_t rows = smaller(kRows, p.rows - i);
    const Kept part = kept<Tiled, kTrim>(p, i, rows);
    for (int64_t j = part.begin; j < part.end; j += kCols)
      tile_block<kInto>(p, i, j, rows, smaller(kCols, part.end - j), part, kTrim == Trim::columns_end);
  }
}

}  // namespace
}  // namespace mudd::MUDD_ISA
