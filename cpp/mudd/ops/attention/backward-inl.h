// The backward pass for a unit of matmul-inl.h: recomputes the scores of one pair of tiles from the saved
// log-sums (Dao 2023, algorithm 2), with the loop over keys outside and over queries inside.
//
// No sum runs along a row of scores, so scores are [query][key]: only keys and values are transposed, once for
// all queries of a block, and queries and dout are used in place. Queries include the score factor, as in
// forward, so the scores have forward's bits; dS is P (dP - delta), dq sums dS times scaled keys, dk sums dS
// times scaled queries.

#pragma once

#include "mudd/ops/attention/dropout-inl.h"

namespace mudd::MUDD_ISA {
namespace {

inline void delta(const AttentionSlice& s, const AttentionGrad& g, int64_t begin, int64_t end, float* out) {
  with_numbers(s.o, [&](auto* o) {
    with_numbers(g.dout, [&](auto* dout) {
      for (int64_t h = 0; h < s.group; ++h)
        for (int64_t t = begin; t < end; ++t) {
          const auto* a = o + t * s.o_row + h * s.o_head;
          const auto* b = dout + t * g.do_row + h * g.do_head;
          out[h * s.queries + t] = row_sum(s.dim, [&](int64_t d, int n, Vec sum) {
                                     return fma(load(a + d, n), load(b + d, n), sum);
                                   }).sum();
        }
    });
  });
}

constexpr int64_t kGradQ = 96, kGradK = 96;  // query and key tile of backward
static_assert(kGradQ % kDraws == 0);
constexpr int64_t kGradBlock = 288;  // queries copied at once

// Replace scores S and dP of one row by P and dS, for `visible` keys; elements that the matmuls read after them
// become zero.
template <class U, class Cell>
inline void grad_row(int64_t visible, int64_t nk, float* p, float* ds, Cell cell) {
  for (int64_t kk = 0; kk < visible; kk += kL) {
    Vec s = Vec::load(p + kk), dp = Vec::load(ds + kk);
    cell(s, dp);
    s.store(p + kk), dp.store(ds + kk);
  }
  for (int64_t kk = visible; kk < smaller(whole<U>(nk), visible + U::kReach); ++kk) p[kk] = ds[kk] = 0.0f;
}

// Replace [rows][kGradK] of S and dP by P and dS; lse and delta of the rows. If the operands are not scaled
// (kLater), S and dS get their factors here. For rows with one visible key use delta = dP: rounding differences
// would otherwise become full AdamW steps.
template <class U>
void grad_scores(const AttentionSlice& a, int64_t rows, int64_t shift, int64_t nk, const float* lse,
                 const float* delta_rows, float* p, float* ds) {
  constexpr bool kLater = U::kPer > 1;
  const auto each = [&](auto row) MUDD_BODY {
    for (int64_t r = 0; r < rows; ++r)
      grad_row<U>(clamp(r + 1 - shift, 0, nk), nk, p + r * kGradK, ds + r * kGradK,
                  row(Vec::set1(lse[r]), Vec::set1(delta_rows[r])));
  };
  const Vec factor = Vec::set1(score_factor(a)), scale = Vec::set1(a.scale);
  const auto score = [=](Vec s) MUDD_BODY { return kLater ? s * factor : s; };
  const auto scaled = [=](Vec s) MUDD_BODY { return kLater ? s * scale : s; };
  if (a.activation == Scores::softmax) {
    const Vec one = Vec::set1(1.0f);
    each([&](Vec top, Vec dot) MUDD_BODY {
      return [=](Vec& s, Vec& dp) MUDD_BODY {
        s = exp2_nonpositive(score(s) - top);
        dp = (dp - select(less(s, one), dot, dp)) * scaled(s);
      };
    });
    return;
  }
  // Without eps, the only visible key of a row has P = A(s) (1 / A(s)), which may round to just below 1.
  const bool whole = has_row_sum(a.activation) && a.eps == 0.0f;
  const Vec one = Vec::set1(whole ? 1.0f - 0x1p-23f : -kMinusInf);
  with_scores(a.activation, [&](auto tag) {
    each([&](Vec by, Vec dot) MUDD_BODY {
      return [=](Vec& s, Vec& dp) MUDD_BODY {
        s = score(s);
        const Vec p = score_value<decltype(tag)::kind>(s) * by;
        dp = (dp - select(less(p, one), dot, dp)) * scaled(score_slope<decltype(tag)::kind>(s) * by);
        s = p;
      };
    });
  });
}

// Set scores that segments, the key mask or the window hide to -inf; the trims skip the causal ones.
inline void mask_grad(const AttentionSlice& s, int64_t t0, int64_t rows, int64_t k0, int64_t nk, float* scores) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = scores + r * kGradK;
    for (int64_t kk = 0; kk < smaller(nk, t0 + r - k0 - s.window + 1); ++kk) row[kk] = kMinusInf;
    if (s.segments) {
      const int32_t segment = s.segments[t0 + r], *keys = s.segments + k0;
      for (int64_t kk = 0; kk < nk; ++kk) row[kk] = keys[kk] == segment ? row[kk] : kMinusInf;
    }
    if (s.key_mask) {
      const int32_t* keys = s.key_mask + k0;
      for (int64_t kk = 0; kk < nk; ++kk) row[kk] = keys[kk] ? row[kk] : kMinusInf;
    }
  }
}

// The matmul operands of a backward tile. A matmul reduces q, dout and ds_rows along their rows, and q_pairs,
// dout_pairs, keys, p_pairs and ds_pairs across rows; kt and vt are transposed. In fp32, q_pairs, dout_pairs,
// p_pairs, ds_pairs and ds_rows are the memory of q, dout, p and ds.
template <class U>
struct GradScratch {
  float *q, *dout, *q_pairs, *dout_pairs, *kv_rows, *kt, *vt, *keys, *p, *ds, *p_pairs, *ds_pairs, *ds_rows, *dk,
      *dv, *lse, *delta, *factors;
  int64_t floats = 0;

  GradScratch(float* at, int64_t dim) {
    const int64_t width = round_up(dim), rowwise = row_words<U>(dim), turned = words_of<U>(dim) * kGradK;
    const auto take = [&](int64_t n) {
      float* here = at + floats;
      floats += (n + 15) / 16 * 16;  // whole cache lines
      return here;
    };
    constexpr bool kPairs = U::kPer > 1;
    q = take(kGradBlock * rowwise), dout = take(kGradBlock * rowwise);
    q_pairs = kPairs ? take(kGradBlock / U::kPer * width) : q;
    dout_pairs = kPairs ? take(kGradBlock / U::kPer * width) : dout;
    kv_rows = take(kGradK * rowwise), kt = take(turned), vt = take(turned), keys = take(kGradK * width);
    p = take(kGradQ * kGradK), ds = take(kGradQ * kGradK);
    ds_rows = kPairs ? take(kGradQ * kGradK / U::kPer) : ds;
    p_pairs = U::kPairsInPlace ? p : take(kGradK * words_of<U>(kGradQ));
    ds_pairs = U::kPairsInPlace ? ds : p;  // P is packed already when the pairs of dS are computed
    dk = take(kGradK * width), dv = take(kGradK * width);
    lse = take(kGradQ), delta = take(kGradQ), factors = take(kGradQ * kGradK);
  }
};

template <class U>
int64_t bwd_scratch(int64_t dim) {
  float none = 0;
  return GradScratch<U>(&none, dim).floats;
}

// Prefetch rows that are needed after the matmuls.
inline void fetch_rows(const float* at, int64_t stride, int64_t n, int64_t dim) {
  for (int64_t r = 0; r < n; ++r)
    for (int64_t d = 0; d < dim; d += 16) __builtin_prefetch(at + r * stride + d, 1, 2);
}

// Set rows of dst to (or add) the sums of a key tile, times factor.
inline void put_rows(const float* sums, int64_t n, int64_t dim, float factor, bool set, float* dst,
                     int64_t stride) {
  const int64_t width = round_up(dim);
  const Vec by = Vec::set1(factor);
  for (int64_t r = 0; r < n; ++r) {
    float* at = dst + r * stride;
    int64_t d = 0;
    for (; d + kL <= dim; d += kL) {
      const Vec v = Vec::load(sums + r * width + d) * by;
      (set ? v : Vec::load(at + d) + v).store(at + d);
    }
    if (d == dim) continue;
    const int lanes = static_cast<int>(dim - d);
    const Vec v = Vec::load(sums + r * width + d) * by;
    (set ? v : Vec::load_n(at + d, lanes) + v).store_n(at + d, lanes);
  }
}

// Set C to the sums, or add them.
template <bool kTurned, Trim kTrim, class U>
inline void sum_matmul(bool add, U unit, const Matmul& p) {
  if (add) matmul<kTurned, kTrim, Into::add>(unit, p);
  else matmul<kTurned, kTrim, Into::set>(unit, p);
}

// Compute one pair of tiles: keys [k0, k0 + nk) and the queries [t0, t0 + rows) of head h, at row `at` of the
// block's copies. fresh: x.dk and x.dv have no sums yet. skip_zeros: of P and dS.
template <class U>
void bwd_pair(const AttentionSlice& s, const AttentionGrad& g, int64_t h, int64_t t0, int64_t rows, int64_t at,
              int64_t k0, int64_t nk, bool fresh, bool skip_zeros, const GradScratch<U>& x) {
  const int64_t width = round_up(s.dim), along = row_words<U>(s.dim), shift = s.causal ? k0 - t0 : kAllVisible;
  const bool deltas = has_row_sum(s.activation);
  for (int64_t r = 0; r < rows; ++r) {
    x.lse[r] = s.lse[h * s.queries + t0 + r];
    x.delta[r] = deltas ? g.delta[h * s.queries + t0 + r] : 0.0f;
  }
  matmul<false, Trim::columns_end, Into::set>(
      U{}, {x.q + at * along, along, x.kt, kGradK, x.p, kGradK, rows, nk, s.dim, shift});
  matmul<false, Trim::columns_end, Into::set>(
      U{}, {x.dout + at * along, along, x.vt, kGradK, x.ds, kGradK, rows, nk, s.dim, shift});
  if (s.segments || s.key_mask || t0 + rows - k0 > s.window) mask_grad(s, t0, rows, k0, nk, x.p);
  if (s.drop) {
    drop_factors<kGradK>(s, h, t0, rows, k0, nk, x.factors);
    multiply_rows<kGradK>(x.factors, rows, nk, x.ds);
  }
  grad_scores<U>(s, rows, shift, nk, x.lse, x.delta, x.p, x.ds);
  if (s.drop) multiply_rows<kGradK>(x.factors, rows, nk, x.p);
  if constexpr (U::kPer > 1) copy_words(U{}, x.ds, kGradK, rows, kGradK, 1.0f, x.ds_rows);
  const int64_t ldp = pair_scores(U{}, x.p, kGradK, rows, nk, x.p_pairs);
  pair_scores(U{}, x.ds, kGradK, rows, nk, x.ds_pairs);
  const float *q = x.q_pairs + at / U::kPer * width, *dout = x.dout_pairs + at / U::kPer * width;
  if (g.dv)
    sum_matmul<true, Trim::depth_begin>(
        !fresh, U{}, {x.p_pairs, ldp, dout, width, x.dv, width, nk, width, rows, shift, nullptr, skip_zeros});
  if (g.dk)
    sum_matmul<true, Trim::depth_begin>(
        !fresh, U{}, {x.ds_pairs, ldp, q, width, x.dk, width, nk, width, rows, shift, nullptr, skip_zeros});
  if (g.dq)
    sum_matmul<false, Trim::depth_end>(
        !(g.set_dq && k0 == window_tile(s, t0, g.key_begin, kGradK)), U{},
        {x.ds_rows, kGradK / U::kPer, x.keys, width, g.dq + t0 * g.dq_row + h * g.dq_head, g.dq_row, rows, s.dim,
         nk, shift, nullptr, skip_zeros});
}

// Transpose rows of keys or values to `to`.
template <class U>
void turn_keys(ConstCells src, int64_t stride, int64_t n, int64_t dim, float* rows, float* to) {
  if constexpr (U::kPer == 1) {
    with_numbers(src, [&](auto* p) { turn([&](int64_t r) { return p + r * stride; }, n, dim, to, kGradK); });
  } else {
    const int64_t ld = row_words<U>(dim);
    copy_words(U{}, src, stride, n, dim, 1.0f, rows);
    turn([&](int64_t r) { return static_cast<const float*>(rows + r * ld); }, n, words_of<U>(dim), to, kGradK);
  }
}

// Compute the keys [k0, k0 + nk) and the queries [begin, end) of head h; `first`: dk and dv have no values yet.
// finite_rows: q and dout are finite.
template <class U>
void bwd_keys(const AttentionSlice& s, const AttentionGrad& g, int64_t h, int64_t begin, int64_t end, int64_t k0,
              int64_t nk, bool first, bool finite_rows, const GradScratch<U>& x) {
  const int64_t width = round_up(s.dim);
  constexpr bool kLater = U::kPer > 1;
  const ConstCells k = s.k + k0 * s.k_row, v = s.v + k0 * s.v_row;
  turn_keys<U>(k, s.k_row, nk, s.dim, x.kv_rows, x.kt);
  turn_keys<U>(v, s.v_row, nk, s.dim, x.kv_rows, x.vt);
  if (g.dq) pair_rows(U{}, k, s.k_row, nk, s.dim, kLater ? 1.0f : s.scale, x.keys);
  const bool skip_zeros = U::kPer == 1 && !(finite_rows && (!g.dq || finite(x.keys, nk * width)));
  if (g.dk) fetch_rows(g.dk + k0 * g.dk_row, g.dk_row, nk, s.dim);
  if (g.dv) fetch_rows(g.dv + k0 * g.dv_row, g.dv_row, nk, s.dim);
  bool fresh = true;
  for (int64_t t0 = begin; t0 < end; t0 += kGradQ) {
    const int64_t rows = smaller(kGradQ, end - t0), seen = s.causal ? smaller(nk, t0 + rows - k0) : nk;
    if (seen <= 0 || left_behind(s, t0, k0 + nk)) continue;
    bwd_pair<U>(s, g, h, t0, rows, t0 - begin, k0, seen, fresh, skip_zeros, x);
    for (int64_t i = seen * width; fresh && i < nk * width; ++i) x.dk[i] = x.dv[i] = 0.0f;
    fresh = false;
  }
  for (int64_t i = 0; fresh && i < nk * width; ++i) x.dk[i] = x.dv[i] = 0.0f;  // keys before every window
  // The factor of the queries divided by the factor of dS.
  const float left = !kLater && s.activation == Scores::softmax ? 1.0f / kLog2e : 1.0f;
  if (g.dk) put_rows(x.dk, nk, s.dim, left, first && g.set_dk, g.dk + k0 * g.dk_row, g.dk_row);
  if (g.dv) put_rows(x.dv, nk, s.dim, 1.0f, first && g.set_dv, g.dv + k0 * g.dv_row, g.dv_row);
}

template <class U>
void bwd(const AttentionSlice& s, const AttentionGrad& g, float* scratch) {
  const GradScratch<U> x(scratch, s.dim);
  [[maybe_unused]] const typename U::Session session;
  for (int64_t h = 0; h < s.group; ++h)
    for (int64_t begin = g.query_begin; begin < g.query_end; begin += kGradBlock) {
      const int64_t end = smaller(begin + kGradBlock, g.query_end);
      const ConstCells q = s.q + (begin * s.q_row + h * s.q_head);
      const ConstCells dout = g.dout + (begin * g.do_row + h * g.do_head);
      copy_words(U{}, q, s.q_row, end - begin, s.dim, score_factor(s), x.q);
      copy_words(U{}, dout, g.do_row, end - begin, s.dim, 1.0f, x.dout);
      if constexpr (U::kPer > 1) {
        pair_rows(U{}, q, s.q_row, end - begin, s.dim, 1.0f, x.q_pairs);
        pair_rows(U{}, dout, g.do_row, end - begin, s.dim, 1.0f, x.dout_pairs);
      }
      const int64_t copied = (end - begin) * round_up(s.dim);  // fp32 elements
      const bool finite_rows = U::kPer > 1 || (finite(x.q, copied) && finite(x.dout, copied));
      for (int64_t k0 = g.key_begin; k0 < g.key_end && (!s.causal || k0 < end); k0 += kGradK) {
        const bool first = h == 0 && (begin == g.query_begin || (s.causal && begin <= k0));
        const int64_t nk = smaller(kGradK, g.key_end - k0);
        if (first || !left_behind(s, begin, k0 + nk))
          bwd_keys<U>(s, g, h, begin, end, k0, nk, first, finite_rows, x);
      }
    }
}

}  // namespace
}  // namespace mudd::MUDD_ISA
