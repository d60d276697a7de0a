// Built once per level over Vec (base/simd/vec.h); see attention.h for the contract.
//
// Scores are kept turned, S^T [key][query]: lanes are queries. So K and V are read where they lie (only the query
// tile is transposed, once), the softmax has no sums across lanes, and decoding fills lanes with the heads of a
// group.
#include "mudd/base/simd/math.h"
#include "mudd/base/simd/transpose.h"
#include "mudd/base/simd/vec.h"
#include "mudd/ops/attention/attention.h"
#include "mudd/ops/attention/product-inl.h"

namespace mudd::MUDD_ISA {
namespace {

constexpr int64_t kQ = 64, kK = 64;  // query and key tile
constexpr float kNothing = -1e30f;   // maximum of a row that has seen no key yet
constexpr float kEmptyRow = 1e30f;   // its log-sum: every probability becomes zero
constexpr float kMinusInf = -__builtin_inff();
constexpr float kLog2e = 1.44269504088896341f;

// What queries are multiplied with: scores of the softmax are exponents of 2.
inline float score_factor(const AttentionSlice& s) {
  return s.activation == Scores::softmax ? s.scale * kLog2e : s.scale;
}
inline int64_t round_up(int64_t n) { return (n + kL - 1) / kL * kL; }
inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// 2^x for x <= 0, exactly 0 below -126.5 (hidden keys: -inf) and exactly 1 at 0. Polynomial of degree 5 fitted by
// Lawson's iteration on [-1/2, 1/2], relative error 1.1e-7 before rounding.
inline Vec exp2_nonpositive(Vec x) {
  x = max(Vec::set1(-127.0f), x);  // pow2(-127) is +0; NaN stays (x is the second operand)
  const Vec n = round(x);
  const Vec f = x - n;
  Vec p = Vec::set1(1.326472731e-03f);
  p = fma(p, f, Vec::set1(9.671512991e-03f));
  p = fma(p, f, Vec::set1(5.550733581e-02f));
  p = fma(p, f, Vec::set1(2.402224243e-01f));
  p = fma(p, f, Vec::set1(6.931470037e-01f));
  p = fma(p, f, Vec::set1(1.0f));
  return p * pow2(n);
}

// dst[d * ld + r] = rows(r)[d] * scale for r < n; zeros up to the next vector.
template <class Rows>
void turn(Rows rows, int64_t n, int64_t dim, float scale, float* dst, int64_t ld) {
  const Vec factor = Vec::set1(scale);
  for (int64_t r0 = 0; r0 < n; r0 += kL) {
    const float* at[kL];
    for (int64_t r = 0; r < kL; ++r) at[r] = r0 + r < n ? rows(r0 + r) : nullptr;
    for (int64_t d = 0; d < dim; d += kL) {
      const int left = static_cast<int>(smaller(dim - d, kL));
      Vec block[kL];
#pragma GCC unroll 16
      for (int r = 0; r < kL; ++r)
        block[r] = !at[r] ? Vec::zero() : left == kL ? Vec::load(at[r] + d) : Vec::load_n(at[r] + d, left);
      transpose(block);
      for (int c = 0; c < left; ++c) (block[c] * factor).store(dst + (d + c) * ld + r0);
    }
  }
}

// dst[r * width + d] = src[r * stride + d] * factor, zeros for dim <= d < width (width: dim rounded up to
// vectors).
void copy_rows(const float* src, int64_t stride, int64_t n, int64_t dim, float factor, float* dst) {
  const int64_t width = round_up(dim);
  const Vec by = Vec::set1(factor);
  for (int64_t r = 0; r < n; ++r) {
    int64_t d = 0;
    for (; d + kL <= dim; d += kL) (Vec::load(src + r * stride + d) * by).store(dst + r * width + d);
    if (d < dim) (Vec::load_n(src + r * stride + d, static_cast<int>(dim - d)) * by).store(dst + r * width + d);
  }
}

// With so few queries the time of a tile is that of fetching keys and values, which decoding finds in memory: they
// are asked for a tile ahead, because at every page the hardware begins anew.
constexpr int64_t kFew = 16;
void read_ahead(const float* src, int64_t stride, int64_t n, int64_t dim) {
  for (int64_t r = 0; r < n; ++r)
    for (int64_t d = 0; d < dim; d += 16) __builtin_prefetch(src + r * stride + d, 0, 2);
}

// The queries of a tile as the masks see them.
struct Rows {
  int64_t count = 0, lanes = 0;  // lanes: count rounded up to vectors
  bool one_head = true;          // then query r is at index first + r
  int64_t first = 0;
  int32_t index[kQ], segment[kQ];
};

Rows tile_rows(const AttentionSlice& s, const QueryTile& tile) {
  Rows rows;
  const int64_t times = tile.end - tile.begin;
  rows.count = times * (tile.head_end - tile.head_begin);
  rows.lanes = round_up(rows.count);
  rows.one_head = tile.head_end - tile.head_begin == 1;
  rows.first = s.first_query + tile.begin;
  for (int64_t r = 0; r < kQ; ++r) {
    const int64_t t = r < rows.count ? tile.begin + r % times : tile.begin;
    rows.index[r] = static_cast<int32_t>(s.first_query + t);
    rows.segment[r] = s.segments ? s.segments[t] : 0;
  }
  return rows;
}

// shift of product-inl.h for the key tile at k0.
int64_t tile_shift(const AttentionSlice& s, const Rows& rows, int64_t k0) {
  return s.causal && rows.one_head ? k0 - rows.first : kAllVisible;
}

// Scores of hidden keys become -inf. S is [key][kQ].
void mask(const AttentionSlice& s, const Rows& rows, int64_t k0, int64_t nk, float* scores) {
  const int64_t shift = tile_shift(s, rows, k0);
  const bool compare = s.causal && !rows.one_head;
  for (int64_t kk = 0; kk < nk; ++kk) {
    float* row = scores + kk * kQ;
    const int32_t key = static_cast<int32_t>(k0 + kk);
    const int64_t hidden = smaller(kk + shift, rows.lanes);
    for (int64_t r = 0; r < hidden; ++r) row[r] = kMinusInf;
    if (compare && key > s.first_query)
      for (int64_t r = 0; r < rows.lanes; ++r) row[r] = rows.index[r] < key ? kMinusInf : row[r];
    if (s.segments) {
      const int32_t segment = s.segments[key];
      for (int64_t r = 0; r < rows.lanes; ++r) row[r] = rows.segment[r] == segment ? row[r] : kMinusInf;
    }
    if (s.key_mask && !s.key_mask[key])
      for (int64_t r = 0; r < rows.lanes; ++r) row[r] = kMinusInf;
  }
}

// Calls body(r, keys) for groups of G vectors of queries beginning at row r; keys: how many of the tile's nk keys
// the group sees at most.
template <int G, class Body>
inline void over_queries(const Rows& rows, int64_t shift, int64_t nk, Body body) {
  int64_t r = 0;
  for (; r + G * kL <= rows.lanes; r += G * kL) body(Index<G>{}, r, clamp(r + G * kL - shift, 0, nk));
  for (; r < rows.lanes; r += kL) body(Index<1>{}, r, clamp(r + kL - shift, 0, nk));
}

// Probabilities that the trimmed products may touch beyond the last visible key are zero.
template <int G>
inline void zero_after(float* p, int64_t r, int64_t keys, int64_t nk) {
  for (int64_t kk = keys; kk < smaller(nk, keys + kStrip); ++kk)
    unroll<G>([&](auto g) MUDD_INLINE { Vec::zero().store(p + kk * kQ + r + g.value * kL); });
}

// One online step: scores [nk][kQ] become probabilities relative to the new maximum; `rescale` gets the factor for
// what was summed before.
void soften(const Rows& rows, int64_t shift, int64_t nk, float* scores, float* highest, float* sum,
            float* rescale) {
  over_queries<4>(rows, shift, nk, [&](auto g, int64_t r, int64_t keys) MUDD_INLINE {
    constexpr int G = decltype(g)::value;
    Vec top[G];
    unroll<G>([&](auto n) MUDD_INLINE { top[n.value] = Vec::load(highest + r + n.value * kL); });
    for (int64_t kk = 0; kk < keys; ++kk)
      unroll<G>([&](auto n) MUDD_INLINE {
        top[n.value] = max(top[n.value], Vec::load(scores + kk * kQ + r + n.value * kL));
      });
    unroll<G>([&](auto n) MUDD_INLINE {
      const int64_t at = r + n.value * kL;
      const Vec factor = exp2_nonpositive(Vec::load(highest + at) - top[n.value]);
      factor.store(rescale + at);
      (Vec::load(sum + at) * factor).store(sum + at);
      top[n.value].store(highest + at);
    });
  });
  over_queries<2>(rows, shift, nk, [&](auto g, int64_t r, int64_t keys) MUDD_INLINE {
    constexpr int G = decltype(g)::value;
    Vec top[G], total[G];
    unroll<G>([&](auto n) MUDD_INLINE {
      top[n.value] = Vec::load(highest + r + n.value * kL);
      total[n.value] = Vec::zero();
    });
    for (int64_t kk = 0; kk < keys; ++kk)
      unroll<G>([&](auto n) MUDD_INLINE {
        float* at = scores + kk * kQ + r + n.value * kL;
        const Vec p = exp2_nonpositive(Vec::load(at) - top[n.value]);
        p.store(at);
        total[n.value] = total[n.value] + p;
      });
    unroll<G>([&](auto n) MUDD_INLINE {
      float* at = sum + r + n.value * kL;
      (Vec::load(at) + total[n.value]).store(at);
    });
    zero_after<G>(scores, r, keys, nk);
  });
}

// A(s) of the activations that are not a softmax, exactly 0 for hidden keys (s = -inf), and its derivative.
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

// Turns the run-time activation into a compile-time one, outside the loops. Not for softmax.
template <Scores A>
struct ScoreTag {
  static constexpr Scores kind = A;
};
template <class Body>
inline void with_scores(Scores a, Body body) {
  if (a == Scores::sqrelu || a == Scores::norm_sqrelu) body(ScoreTag<Scores::sqrelu>{});
  else body(ScoreTag<Scores::elu>{});
}

// Scores [nk][kQ] become A(scores), their sums are added to `sum`.
void activate_scores(const Rows& rows, int64_t shift, int64_t nk, Scores a, float* scores, float* sum) {
  with_scores(a, [&](auto tag) {
    over_queries<2>(rows, shift, nk, [&](auto g, int64_t r, int64_t keys) MUDD_INLINE {
      constexpr int G = decltype(g)::value;
      Vec total[G];
      unroll<G>([&](auto n) MUDD_INLINE { total[n.value] = Vec::zero(); });
      for (int64_t kk = 0; kk < keys; ++kk)
        unroll<G>([&](auto n) MUDD_INLINE {
          float* at = scores + kk * kQ + r + n.value * kL;
          const Vec p = score_value<decltype(tag)::kind>(Vec::load(at));
          p.store(at);
          total[n.value] = total[n.value] + p;
        });
      unroll<G>([&](auto n) MUDD_INLINE {
        float* at = sum + r + n.value * kL;
        (Vec::load(at) + total[n.value]).store(at);
      });
      zero_after<G>(scores, r, keys, nk);
    });
  });
}

int64_t fwd_scratch(int64_t dim) { return dim * kQ + kK * kQ + (kK + kQ) * round_up(dim) + 3 * kQ; }

// What the summed values of a row are multiplied with, and what backward keeps of the row: for the softmax its
// log-sum, for the others this factor.
float row_factor(const AttentionSlice& s, float sum, float log_sum, float* kept) {
  if (s.activation == Scores::softmax) {
    *kept = sum == 0.0f ? kEmptyRow : log_sum;
    return sum == 0.0f ? 0.0f : 1.0f / sum;
  }
  const float divisor = has_row_sum(s.activation) ? s.eps + sum : s.divisor;
  *kept = divisor == 0.0f ? 0.0f : 1.0f / divisor;
  return *kept;
}

void write_rows(const AttentionSlice& s, const QueryTile& tile, const Rows& rows, const float* acc,
                const float* highest, const float* sum) {
  const int64_t width = round_up(s.dim), times = tile.end - tile.begin;
  float logs[kQ];
  for (int64_t r = 0; r < rows.lanes; r += kL)
    fma(log(Vec::load(sum + r)), Vec::set1(kLog2e), Vec::load(highest + r)).store(logs + r);
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t h = tile.head_begin + r / times, t = tile.begin + r % times;
    float kept = 0;
    const Vec factor = Vec::set1(row_factor(s, sum[r], logs[r], &kept));
    if (s.lse) s.lse[h * s.queries + t] = kept;
    float* o = s.o + t * s.o_row + h * s.o_head;
    // + 0 turns -0 into +0: trimmed and untrimmed sums may differ in the sign of a zero.
    for (int64_t d = 0; d < s.dim; d += kL) {
      const Vec v = fma(Vec::load(acc + r * width + d), factor, Vec::zero());
      if (d + kL <= s.dim) v.store(o + d);
      else v.store_n(o + d, static_cast<int>(s.dim - d));
    }
  }
}

void fwd(const AttentionSlice& s, const QueryTile& tile, float* scratch) {
  const int64_t width = round_up(s.dim), times = tile.end - tile.begin;
  float* qt = scratch;
  float* scores = qt + s.dim * kQ;
  float* values = scores + kK * kQ;
  float* acc = values + kK * width;
  float* highest = acc + kQ * width;
  float *sum = highest + kQ, *rescale = sum + kQ;
  const Rows rows = tile_rows(s, tile);
  const bool softmax = s.activation == Scores::softmax;
  turn(
      [&](int64_t r) {
        return s.q + (tile.begin + r % times) * s.q_row + (tile.head_begin + r / times) * s.q_head;
      },
      rows.count, s.dim, score_factor(s), qt, kQ);
  for (int64_t r = 0; r < rows.lanes; ++r) highest[r] = kNothing, sum[r] = 0.0f;
  for (int64_t i = 0; i < rows.count * width; ++i) acc[i] = 0.0f;
  const int64_t last = s.causal ? smaller(s.keys, s.first_query + tile.end) : s.keys;
  const bool cold = rows.count <= kFew;
  if (cold) read_ahead(s.k, s.k_row, smaller(kK, last), s.dim);
  for (int64_t k0 = 0; k0 < last; k0 += kK) {
    const int64_t nk = smaller(kK, last - k0), shift = tile_shift(s, rows, k0);
    if (cold) {
      read_ahead(s.v + k0 * s.v_row, s.v_row, nk, s.dim);
      read_ahead(s.k + (k0 + nk) * s.k_row, s.k_row, smaller(kK, last - k0 - nk), s.dim);
    }
    product<false, Trim::columns_begin>(
        {s.k + k0 * s.k_row, s.k_row, qt, kQ, scores, kQ, nk, rows.lanes, s.dim, false, nullptr, shift});
    mask(s, rows, k0, nk, scores);
    if (softmax) soften(rows, shift, nk, scores, highest, sum, rescale);
    else activate_scores(rows, shift, nk, s.activation, scores, sum);
    copy_rows(s.v + k0 * s.v_row, s.v_row, nk, s.dim, 1.0f, values);
    product<true, Trim::depth_end>(
        {scores, kQ, values, width, acc, width, rows.count, width, nk, true, softmax ? rescale : nullptr, shift});
  }
  write_rows(s, tile, rows, acc, highest, sum);
}

#include "mudd/ops/attention/backward-inl.h"

}  // namespace

const AttentionKernels attention_f32 = {kQ, kK, fwd_scratch, fwd, bwd_scratch, delta, bwd};

}  // namespace mudd::MUDD_ISA
