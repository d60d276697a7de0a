// The forward pass, for a unit of matmul-inl.h.
#pragma once

#include <cmath>

#include "mudd/ops/attention/dropout-inl.h"

namespace mudd::MUDD_ISA {
namespace {

// Return the factor of the summed values of a row, and the statistic that backward needs: for softmax the
// log-sum, for others this factor. A NaN stays one: log() would return a number that depends on its sign.
inline float row_factor(const AttentionSlice& s, float sum, float log_sum, float* kept) {
  if (s.activation == Scores::softmax) {
    *kept = sum == 0.0f ? kEmptyRow : std::isnan(sum) ? sum : log_sum;
    return sum == 0.0f ? 0.0f : 1.0f / sum;
  }
  const float divisor = has_row_sum(s.activation) ? s.eps + sum : s.divisor;
  *kept = divisor == 0.0f ? 0.0f : 1.0f / divisor;
  return *kept;
}

template <class U>
struct ForwardScratch {
  float *qt[kQueries / kQ], *keys, *values, *scores, *pairs, *acc, *highest, *sum, *rescale;
  int64_t floats = 0;

  ForwardScratch(float* at, int64_t dim) {
    const int64_t width = round_up(dim);
    const auto take = [&](int64_t n) {
      float* here = at + floats;
      floats += (n + 15) / 16 * 16;  // whole cache lines
      return here;
    };
    for (float*& q : qt) q = take(words_of<U>(dim) * kQ);
    keys = take(kK * width), values = take(kK * width), scores = take(kK * kQ);
    pairs = U::kPairsInPlace ? scores : take(kQ * words_of<U>(kK));
    acc = take(kQueries * width);
    highest = take(kQueries), sum = take(kQueries), rescale = take(kQ);
  }
};

template <class U>
int64_t fwd_scratch(int64_t dim) {
  float none = 0;
  return ForwardScratch<U>(&none, dim).floats;
}

// Write rows r0 ... of a tile. Return false if an element is not finite.
inline bool write_rows(const AttentionSlice& s, const QueryTile& tile, const Rows& rows, int64_t r0,
                       const float* acc, const float* highest, const float* sum) {
  const int64_t width = round_up(s.dim), times = tile.end - tile.begin;
  float logs[kQ];
  for (int64_t r = 0; r < rows.lanes; r += kL)
    fma(log(Vec::load(sum + r)), Vec::set1(kLog2e), Vec::load(highest + r)).store(logs + r);
  Vec zeros = Vec::zero();  // or NaN
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t h = tile.head_begin + (r0 + r) / times, t = tile.begin + (r0 + r) % times;
    float kept = 0;
    const Vec factor = Vec::set1(row_factor(s, sum[r], logs[r], &kept));
    if (s.lse) s.lse[h * s.queries + t] = kept;
    // Adding 0 turns -0 into +0: trimmed and untrimmed sums may differ in the sign of a zero.
    over_row(s.dim, [&](int64_t d, int lanes) {
      const Vec value = fma(Vec::load(acc + r * width + d), factor, Vec::zero());
      zeros = zeros + (value - value);
      store(s.o, t * s.o_row + h * s.o_head + d, value, lanes);
    });
  }
  return zeros.sum() == 0.0f;
}

// Transpose the queries of `rows`, scaled if their type permits it.
template <class U>
void turn_queries(const AttentionSlice& s, const QueryTile& tile, const Rows& rows, int64_t r0, float* rowwise,
                  float* qt) {
  const int64_t times = tile.end - tile.begin, ld = row_words<U>(s.dim);
  const auto query = [&](int64_t r) {
    return s.q + ((tile.begin + (r0 + r) % times) * s.q_row + (tile.head_begin + (r0 + r) / times) * s.q_head);
  };
  if constexpr (U::kPer == 1) {
    with_numbers(s.q, [&](auto* q) {
      using Row = decltype(q);
      turn([&](int64_t r) { return static_cast<Row>(query(r).data); }, rows.count, s.dim, score_factor(s), qt, kQ);
    });
  } else {
    for (int64_t r = 0; r < rows.count; ++r)
      copy_words(U{}, query(r), s.q_row, 1, s.dim, score_factor(s), rowwise + r * ld);
    turn([&](int64_t r) { return static_cast<const float*>(rowwise + r * ld); }, rows.count, words_of<U>(s.dim),
         qt, kQ);
  }
}

// Compute the keys [k0, k0 + nk) and the queries of `rows`; A: the keys in the format of the matmuls. fresh:
// acc has no sums yet.
template <class U>
void fwd_pair(const AttentionSlice& s, const Rows& rows, int64_t k0, int64_t nk, const float* a, int64_t lda,
              const float* qt, bool fresh, bool skip_zeros, const ForwardScratch<U>& x, float* acc, float* highest,
              float* sum) {
  const int64_t width = round_up(s.dim), shift = tile_shift(s, rows, k0);
  const bool softmax = s.activation == Scores::softmax;
  matmul<false, Trim::columns_begin, Into::set>(U{}, {a, lda, qt, kQ, x.scores, kQ, nk, rows.lanes, s.dim, shift});
  mask(s, rows, k0, nk, x.scores);
  const float later = U::kPer > 1 ? score_factor(s) : 1.0f;  // rounded queries are not scaled
  if (softmax) soften<U>(rows, shift, nk, later, x.scores, highest, sum, x.rescale);
  else activate_scores<U>(rows, shift, nk, s.activation, later, x.scores, sum);
  if (s.drop) drop_scores(s, rows, k0, nk, x.scores);
  const int64_t ldp = pair_scores(U{}, x.scores, kQ, nk, rows.lanes, x.pairs);
  const Matmul pv{x.pairs, ldp, x.values, width, acc, width, rows.count, width, nk, shift, x.rescale, skip_zeros};
  if (fresh) matmul<true, Trim::depth_end, Into::set>(U{}, pv);
  else if (softmax) matmul<true, Trim::depth_end, Into::scaled_add>(U{}, pv);
  else matmul<true, Trim::depth_end, Into::add>(U{}, pv);
}

// Return false if an output is not finite.
template <class U>
bool fwd_tile(const AttentionSlice& s, const QueryTile& tile, const ForwardScratch<U>& x, bool skip_zeros) {
  constexpr int64_t kParts = kQueries / kQ;
  const int64_t width = round_up(s.dim);
  Rows rows[kParts];
  bool fresh[kParts];
  int64_t parts = 0;
  for (int64_t i = 0; i < kParts; ++i) {
    rows[i] = tile_rows(s, tile, i * kQ);
    if (rows[i].count == 0) break;
    turn_queries<U>(s, tile, rows[i], i * kQ, x.acc, x.qt[i]);
    fresh[i] = true, ++parts;
  }
  for (int64_t r = 0; r < kQueries; ++r) x.highest[r] = kNothing, x.sum[r] = 0.0f;
  const int64_t last = s.causal ? smaller(s.keys, s.first_query + tile.end) : s.keys;
  const bool in_place = U::kPer == 1 && s.k.type == DType::f32;
  const int64_t begin = window_tile(s, s.first_query + tile.begin, 0, kK);
  read_ahead(s, begin, smaller(begin + kK, last));
  for (int64_t k0 = begin; k0 < last; k0 += kK) {
    const int64_t nk = smaller(kK, last - k0);
    const ConstCells k = s.k + k0 * s.k_row, v = s.v + k0 * s.v_row;
    if (!in_place) copy_words(U{}, k, s.k_row, nk, s.dim, 1.0f, x.keys);
    pair_rows(U{}, v, s.v_row, nk, s.dim, 1.0f, x.values);
    for (int64_t i = 0; i < parts; ++i) {
      const Rows& part = rows[i];
      const int64_t next = k0 + nk, ahead = smaller(kK, last - next);  // each part prefetches its slice
      read_ahead(s, next + ahead * i / parts, next + ahead * (i + 1) / parts);
      const int64_t seen = s.causal && part.one_head ? clamp(part.first + part.count - k0, 0, nk) : nk;
      if (seen == 0 || (part.one_head && left_behind(s, part.first, k0 + nk))) continue;
      fwd_pair<U>(s, part, k0, seen, in_place ? k.f32() : x.keys, in_place ? s.k_row : row_words<U>(s.dim),
                  x.qt[i], fresh[i], skip_zeros, x, x.acc + i * kQ * width, x.highest + i * kQ, x.sum + i * kQ);
      fresh[i] = false;
    }
  }
  bool finite = true;
  for (int64_t i = 0; i < parts; ++i)
    finite &= write_rows(s, tile, rows[i], i * kQ, x.acc + i * kQ * width, x.highest + i * kQ, x.sum + i * kQ);
  return finite;
}

template <class U>
void fwd(const AttentionSlice& s, const QueryTile& tile, float* scratch) {
  const ForwardScratch<U> x(scratch, s.dim);
  [[maybe_unused]] const typename U::Session session;
  const bool finite = fwd_tile<U>(s, tile, x, false);
  if (U::kPer == 1 && !finite) fwd_tile<U>(s, tile, x, true);
}

}  // namespace
}  // namespace mudd::MUDD_ISA
