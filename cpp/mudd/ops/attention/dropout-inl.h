// Dropout of the probabilities of one pair of tiles: the draws of attention.h, in the layouts of forward and
// backward.
#pragma once

#include "mudd/base/simd/draws.h"
#include "mudd/ops/attention/scores-inl.h"

namespace mudd::MUDD_ISA {
namespace {

// Set dropped probabilities of [nk][kQ] to zero and scale the others.
inline void drop_scores(const AttentionSlice& s, const Rows& rows, int64_t k0, int64_t nk, float* p) {
  static_assert(kQ % kDraws == 0 && kK % 4 == 0);
  Draws draws;
  for (int64_t r = 0; r < rows.lanes; r += kDraws)
    for (int64_t kk = 0; kk < nk; kk += 4) {
      for (int i = 0; i < kDraws; ++i) {
        draws.position[i] = static_cast<uint32_t>(rows.index[r + i]);
        draws.block[i] = s.draw_block(rows.head[r + i], k0 + kk);
      }
      draws.draw(s.drop, s.drop.sample);
      for (int64_t w = 0; w < smaller(4, nk - kk); ++w)
        for (int i = 0; i < kDraws; ++i) p[(kk + w) * kQ + r + i] *= draws.factor[w][i];
    }
}

// Compute the dropout factors of queries [t0, t0 + rows) of head h and keys [k0, k0 + nk), [rows][kKeys]; rows
// are padded to a multiple of kDraws.
template <int64_t kKeys>
void drop_factors(const AttentionSlice& s, int64_t h, int64_t t0, int64_t rows, int64_t k0, int64_t nk,
                  float* factors) {
  static_assert(kKeys % 4 == 0);
  Draws draws;
  for (int64_t r = 0; r < rows; r += kDraws)
    for (int64_t kk = 0; kk < nk; kk += 4) {
      for (int i = 0; i < kDraws; ++i) {
        draws.position[i] = static_cast<uint32_t>(t0 + r + i);
        draws.block[i] = s.draw_block(h, k0 + kk);
      }
      draws.draw(s.drop, s.drop.sample);
      for (int i = 0; i < kDraws; ++i)
        for (int w = 0; w < 4; ++w) factors[(r + i) * kKeys + kk + w] = draws.factor[w][i];
    }
}

// Multiply [rows][kKeys] by these factors, nk elements of each row.
template <int64_t kKeys>
void multiply_rows(const float* factors, int64_t rows, int64_t nk, float* x) {
  for (int64_t r = 0; r < rows * kKeys; r += kKeys)
    over_row(nk, [&](int64_t k, int n) { store(x + r + k, load(x + r + k, n) * load(factors + r + k, n), n); });
}

}  // namespace
}  // namespace mudd::MUDD_ISA
