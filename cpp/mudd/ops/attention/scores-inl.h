// Scores of one pair of tiles: masks, softmax and the other activations.
#pragma once

#include "mudd/base/simd/bf16.h"
#include "mudd/base/simd/math.h"
#include "mudd/base/simd/transpose.h"
#include "mudd/ops/attention/attention.h"
#include "mudd/ops/attention/pack-inl.h"

namespace mudd::MUDD_ISA {
namespace {

constexpr int64_t kQ = 64, kK = 64;   // query and key tile of a matmul
constexpr int64_t kQueries = 4 * kQ;  // of a task, which loads keys and values once for all of them
constexpr float kNothing = -1e30f;    // maximum of a row without a key so far
constexpr float kEmptyRow = 1e30f;    // its log-sum: every probability becomes zero
constexpr float kMinusInf = -__builtin_inff();
constexpr float kLog2e = 1.44269504088896341f;

// Return the factor of the queries: scores of softmax are exponents of 2.
inline float score_factor(const AttentionSlice& s) {
  return s.activation == Scores::softmax ? s.scale * kLog2e : s.scale;
}

// Return 2^x for x <= 0, exactly 0 below -126.5 (hidden keys: -inf) and exactly 1 at 0. Polynomial of degree 5
// fitted by Lawson's iteration on [-1/2, 1/2], relative error 1.1e-7 before rounding. G vectors are interleaved:
// one chain has thirty cycles of latency and few instructions.
template <int G>
inline void exp2_nonpositive(Vec (&x)[G]) {
  constexpr float kTerms[] = {9.671512991e-03f, 5.550733581e-02f, 2.402224243e-01f, 6.931470037e-01f, 1.0f};
  Vec n[G], p[G];
  const auto all = [](auto body) MUDD_BODY { unroll<G>([&](auto g) MUDD_BODY { body(g.value); }); };
  all([&](int g) MUDD_BODY { x[g] = max(Vec::set1(-127.0f), x[g]); });  // pow2(-127) is +0; NaN stays (second)
  all([&](int g) MUDD_BODY { n[g] = round(x[g]); });
  all([&](int g) MUDD_BODY { x[g] = x[g] - n[g], p[g] = Vec::set1(1.326472731e-03f); });
  unroll<5>([&](auto term) MUDD_BODY {
    all([&](int g) MUDD_BODY { p[g] = fma(p[g], x[g], Vec::set1(kTerms[term.value])); });
  });
  all([&](int g) MUDD_BODY { x[g] = p[g] * pow2(n[g]); });
}
inline Vec exp2_nonpositive(Vec x) {
  Vec one[] = {x};
  exp2_nonpositive(one);
  return one[0];
}

// The queries of a tile for the masks.
struct Rows {
  int64_t count = 0, lanes = 0;  // lanes: count rounded up to vectors
  bool one_head = true;          // then query r is at index first + r
  int64_t first = 0;
  int32_t index[kQ], segment[kQ];
  int64_t head[kQ];
};

// Rows [r0, r0 + kQ) of a tile.
inline Rows tile_rows(const AttentionSlice& s, const QueryTile& tile, int64_t r0) {
  Rows rows;
  const int64_t times = tile.end - tile.begin;
  rows.count = clamp(times * (tile.head_end - tile.head_begin) - r0, 0, kQ);
  rows.lanes = round_up(rows.count);
  rows.one_head = tile.head_end - tile.head_begin == 1;
  rows.first = s.first_query + tile.begin + r0;
  for (int64_t r = 0; r < kQ; ++r) {
    const int64_t t = r < rows.count ? tile.begin + (r0 + r) % times : tile.begin;
    rows.head[r] = tile.head_begin + (r < rows.count ? (r0 + r) / times : 0);
    rows.index[r] = static_cast<int32_t>(s.first_query + t);
    rows.segment[r] = s.segments ? s.segments[t] : 0;
  }
  return rows;
}

// Return the shift of matmul-inl.h for the key tile at k0.
inline int64_t tile_shift(const AttentionSlice& s, const Rows& rows, int64_t k0) {
  return s.causal && rows.one_head ? k0 - rows.first : kAllVisible;
}

// Return the first key of the first tile, counted from `begin`, in the window of the query at index `query`.
inline int64_t window_tile(const AttentionSlice& s, int64_t query, int64_t begin, int64_t tile) {
  return begin + larger(0, query - s.window + 1 - begin) / tile * tile;
}

// Return true if the windows of all queries from index `query` start after key `end` - 1.
inline bool left_behind(const AttentionSlice& s, int64_t query, int64_t end) {
  return query - end + 1 >= s.window;
}

// Set scores of hidden keys to -inf. S is [key][kQ].
inline void mask(const AttentionSlice& s, const Rows& rows, int64_t k0, int64_t nk, float* scores) {
  const int64_t shift = tile_shift(s, rows, k0);
  const bool compare = s.causal && !rows.one_head;
  const bool leaves = s.first_query + s.queries - k0 > s.window;  // some query's window starts after k0
  if (!compare && !s.segments && !s.key_mask && !leaves && nk + shift <= 1) return;  // all are visible
  for (int64_t kk = 0; kk < nk; ++kk) {
    float* row = scores + kk * kQ;
    const int32_t key = static_cast<int32_t>(k0 + kk);
    const int64_t hidden = smaller(kk + shift, rows.lanes);
    for (int64_t r = 0; r < hidden; ++r) row[r] = kMinusInf;
    if (compare && key > s.first_query)
      for (int64_t r = 0; r < rows.lanes; ++r) row[r] = rows.index[r] < key ? kMinusInf : row[r];
    if (leaves)
      for (int64_t r = 0; r < rows.lanes; ++r) row[r] = rows.index[r] - key >= s.window ? kMinusInf : row[r];
    if (s.segments) {
      const int32_t segment = s.segments[key];
      for (int64_t r = 0; r < rows.lanes; ++r) row[r] = rows.segment[r] == segment ? row[r] : kMinusInf;
    }
    if (s.key_mask && !s.key_mask[key])
      for (int64_t r = 0; r < rows.lanes; ++r) row[r] = kMinusInf;
  }
}

// Call body(r, keys) for groups of G vectors of queries from row r; keys: the count of the tile's nk keys that
// the group can see.
template <int G, class Body>
inline void over_queries(const Rows& rows, int64_t shift, int64_t nk, Body body) {
  int64_t r = 0;
  for (; r + G * kL <= rows.lanes; r += G * kL) body(Index<G>{}, r, clamp(r + G * kL - shift, 0, nk));
  for (; r < rows.lanes; r += kL) body(Index<1>{}, r, clamp(r + kL - shift, 0, nk));
}

// Set probabilities after the last visible key to zero, as far as the trimmed matmuls read them.
template <class U, int G>
inline void zero_after(float* p, int64_t r, int64_t keys, int64_t nk) {
  for (int64_t kk = keys; kk < smaller(nk, keys + U::kReach); ++kk)
    unroll<G>([&](auto g) MUDD_BODY { Vec::zero().store(p + kk * kQ + r + g.value * kL); });
}

// Run one online-softmax step: replace scores [nk][kQ] by probabilities relative to the new maximum; `rescale`
// gets the factor of the previous sums. later: the factor of the scores if rounded queries are not scaled.
template <class U>
void soften(const Rows& rows, int64_t shift, int64_t nk, float later, float* scores, float* highest, float* sum,
            float* rescale) {
  const Vec by = Vec::set1(later);
  const auto score = [&](const float* at) MUDD_BODY { return U::kPer > 1 ? Vec::load(at) * by : Vec::load(at); };
  over_queries<4>(rows, shift, nk, [&](auto g, int64_t r, int64_t keys) MUDD_BODY {
    constexpr int G = decltype(g)::value;
    Vec top[G];
    unroll<G>([&](auto n) MUDD_BODY { top[n.value] = Vec::load(highest + r + n.value * kL); });
    for (int64_t kk = 0; kk < keys; ++kk)
      unroll<G>([&](auto n)
                    MUDD_BODY { top[n.value] = max(top[n.value], score(scores + kk * kQ + r + n.value * kL)); });
    unroll<G>([&](auto n) MUDD_BODY {
      const int64_t at = r + n.value * kL;
      const Vec factor = exp2_nonpositive(Vec::load(highest + at) - top[n.value]);
      factor.store(rescale + at);
      (Vec::load(sum + at) * factor).store(sum + at);
      top[n.value].store(highest + at);
    });
  });
  over_queries<2>(rows, shift, nk, [&](auto g, int64_t r, int64_t keys) MUDD_BODY {
    constexpr int G = decltype(g)::value;
    Vec top[G], total[G];
    unroll<G>([&](auto n) MUDD_BODY {
      top[n.value] = Vec::load(highest + r + n.value * kL);
      total[n.value] = Vec::zero();
    });
    for (int64_t kk = 0; kk < keys; ++kk) {
      float* at = scores + kk * kQ + r;
      Vec p[G];
      unroll<G>([&](auto n) MUDD_BODY { p[n.value] = score(at + n.value * kL) - top[n.value]; });
      exp2_nonpositive(p);
      unroll<G>([&](auto n) MUDD_BODY {
        p[n.value].store(at + n.value * kL);
        total[n.value] = total[n.value] + p[n.value];
      });
    }
    unroll<G>([&](auto n) MUDD_BODY {
      float* at = sum + r + n.value * kL;
      (Vec::load(at) + total[n.value]).store(at);
    });
    zero_after<U, G>(scores, r, keys, nk);
  });
}

// Return A(s) of the activations other than softmax, exactly 0 for hidden keys (s = -inf), and its derivative.
template <Scores A>
inline Vec score_value(Vec s) {
  if constexpr (A == Scores::sqrelu || A == Scores::norm_sqrelu) {
    const Vec r = max(s, Vec::zero());
    return r * r;
  } else {
    const Vec tail = exp2_nonpositive(min(s, Vec::zero()) * Vec::set1(kLog2e));
    return select(less(Vec::zero(), s), s + Vec::set1(1.0f), tail);
  }
}
template <Scores A>
inline Vec score_slope(Vec s) {
  if constexpr (A == Scores::sqrelu || A == Scores::norm_sqrelu) {
    const Vec r = max(s, Vec::zero());
    return r + r;
  } else {
    return exp2_nonpositive(min(s, Vec::zero()) * Vec::set1(kLog2e));
  }
}

// Convert the run-time activation to a compile-time one, outside the loops. Not for softmax.
template <Scores A>
struct ScoreTag {
  static constexpr Scores kind = A;
};
template <class Body>
inline void with_scores(Scores a, Body body) {
  if (a == Scores::sqrelu || a == Scores::norm_sqrelu) body(ScoreTag<Scores::sqrelu>{});
  else body(ScoreTag<Scores::elu>{});
}

// Replace scores [nk][kQ] by A(scores) and add them to `sum`.
template <class U>
void activate_scores(const Rows& rows, int64_t shift, int64_t nk, Scores a, float later, float* scores,
                     float* sum) {
  const Vec by = Vec::set1(later);
  with_scores(a, [&](auto tag) {
    over_queries<2>(rows, shift, nk, [&](auto g, int64_t r, int64_t keys) MUDD_BODY {
      constexpr int G = decltype(g)::value;
      Vec total[G];
      unroll<G>([&](auto n) MUDD_BODY { total[n.value] = Vec::zero(); });
      for (int64_t kk = 0; kk < keys; ++kk)
        unroll<G>([&](auto n) MUDD_BODY {
          float* at = scores + kk * kQ + r + n.value * kL;
          const Vec p = score_value<decltype(tag)::kind>(Vec::load(at) * by);
          p.store(at);
          total[n.value] = total[n.value] + p;
        });
      unroll<G>([&](auto n) MUDD_BODY {
        float* at = sum + r + n.value * kL;
        (Vec::load(at) + total[n.value]).store(at);
      });
      zero_after<U, G>(scores, r, keys, nk);
    });
  });
}

}  // namespace
}  // namespace mudd::MUDD_ISA
