// The backward half of kernel-inl.h, included inside its anonymous namespace: recomputes the scores of one pair of
// tiles from the saved log-sums (Dao 2023, algorithm 2), keys outside, queries inside.
//
// Here nothing is summed along a row of scores, so scores are [query][key]: only keys and values are turned, once
// for all queries of a block, and queries and dout are used as they lie. Queries carry the factor of the scores,
// as forward's do, so that the scores are forward's bits; dS is P (dP - delta), dq sums dS times keys that carry
// the factor, dk sums dS times those queries.

void delta(const AttentionSlice& s, const AttentionGrad& g, int64_t begin, int64_t end, float* out) {
  for (int64_t h = 0; h < s.group; ++h)
    for (int64_t t = begin; t < end; ++t) {
      const float *o = s.o + t * s.o_row + h * s.o_head, *dout = g.dout + t * g.do_row + h * g.do_head;
      Vec even = Vec::zero(), odd = Vec::zero();
      int64_t d = 0;
      for (; d + 2 * kL <= s.dim; d += 2 * kL) {
        __builtin_prefetch(o + 8 * s.o_row + d), __builtin_prefetch(dout + 8 * g.do_row + d);
        even = fma(Vec::load(o + d), Vec::load(dout + d), even);
        odd = fma(Vec::load(o + d + kL), Vec::load(dout + d + kL), odd);
      }
      for (; d < s.dim; d += kL) {
        const int n = static_cast<int>(smaller(s.dim - d, kL));
        even = fma(Vec::load_n(o + d, n), Vec::load_n(dout + d, n), even);
      }
      out[h * s.queries + t] = (even + odd).sum();
    }
}

constexpr int64_t kGradQ = 96, kGradK = 96;  // query and key tile of backward
constexpr int64_t kGradBlock = 288;          // queries copied at once

// Scores S and dP of one row, `visible` keys of them, become P and dS; the products may touch up to kStrip keys
// more, which are zero.
template <class Cell>
inline void grad_row(int64_t visible, int64_t nk, float* p, float* ds, Cell cell) {
  for (int64_t kk = 0; kk < visible; kk += kL) {
    Vec s = Vec::load(p + kk), dp = Vec::load(ds + kk);
    cell(s, dp);
    s.store(p + kk), dp.store(ds + kk);
  }
  for (int64_t kk = visible; kk < smaller(nk, visible + kStrip); ++kk) p[kk] = ds[kk] = 0.0f;
}

// [rows][kGradK] of S and dP become P and dS; lse and delta of the rows.
void grad_scores(const AttentionSlice& a, int64_t rows, int64_t shift, int64_t nk, const float* lse,
                 const float* delta_rows, float* p, float* ds) {
  const auto each = [&](auto row) MUDD_INLINE {
    for (int64_t r = 0; r < rows; ++r)
      grad_row(clamp(r + 1 - shift, 0, nk), nk, p + r * kGradK, ds + r * kGradK,
               row(Vec::set1(lse[r]), Vec::set1(delta_rows[r])));
  };
  if (a.activation == Scores::softmax) {
    each([&](Vec top, Vec dot) MUDD_INLINE {
      return [=](Vec& s, Vec& dp) MUDD_INLINE {
        s = exp2_nonpositive(s - top);
        dp = (dp - dot) * s;
      };
    });
    return;
  }
  with_scores(a.activation, [&](auto tag) {
    each([&](Vec by, Vec dot) MUDD_INLINE {
      return [=](Vec& s, Vec& dp) MUDD_INLINE {
        dp = (dp - dot) * (score_slope<decltype(tag)::kind>(s) * by);
        s = score_value<decltype(tag)::kind>(s) * by;
      };
    });
  });
}

// Scores that segments or the key mask hide become -inf; the causal ones are left out by the trims.
void mask_grad(const AttentionSlice& s, int64_t t0, int64_t rows, int64_t k0, int64_t nk, float* scores) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = scores + r * kGradK;
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

struct GradScratch {
  float *q, *dout, *kt, *vt, *keys, *p, *ds, *dk, *dv, *lse, *delta;
  int64_t floats = 0;

  GradScratch(float* at, int64_t dim) {
    const int64_t width = round_up(dim);
    const auto take = [&](int64_t n) {
      float* here = at + floats;
      floats += (n + 15) / 16 * 16;  // whole lines of the cache
      return here;
    };
    q = take(kGradBlock * width), dout = take(kGradBlock * width);
    kt = take(dim * kGradK), vt = take(dim * kGradK), keys = take(kGradK * width);
    p = take(kGradQ * kGradK), ds = take(kGradQ * kGradK);
    dk = take(kGradK * width), dv = take(kGradK * width);
    lse = take(kGradQ), delta = take(kGradQ);
  }
};

int64_t bwd_scratch(int64_t dim) {
  float none = 0;
  return GradScratch(&none, dim).floats;
}

// Rows that are needed when the products are done.
void fetch_rows(const float* at, int64_t stride, int64_t n, int64_t dim) {
  for (int64_t r = 0; r < n; ++r)
    for (int64_t d = 0; d < dim; d += 16) __builtin_prefetch(at + r * stride + d, 1, 2);
}

// dst rows = (add to dst) the sums of a key tile, times factor.
void put_rows(const float* sums, int64_t n, int64_t dim, float factor, bool set, float* dst, int64_t stride) {
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

// One pair of tiles: keys [k0, k0 + nk) and the queries [t0, t0 + rows) of head h, which lie at row `at` of the
// block's copies.
void bwd_pair(const AttentionSlice& s, const AttentionGrad& g, int64_t h, int64_t t0, int64_t rows, int64_t at,
              int64_t k0, int64_t nk, const GradScratch& x) {
  const int64_t width = round_up(s.dim), shift = s.causal ? k0 - t0 : kAllVisible;
  const float *q = x.q + at * width, *dout = x.dout + at * width;
  const bool deltas = has_row_sum(s.activation);
  for (int64_t r = 0; r < rows; ++r) {
    x.lse[r] = s.lse[h * s.queries + t0 + r];
    x.delta[r] = deltas ? g.delta[h * s.queries + t0 + r] : 0.0f;
  }
  product<false, Trim::columns_end>({q, width, x.kt, kGradK, x.p, kGradK, rows, nk, s.dim, false, nullptr, shift});
  product<false, Trim::columns_end>(
      {dout, width, x.vt, kGradK, x.ds, kGradK, rows, nk, s.dim, false, nullptr, shift});
  if (s.segments || s.key_mask) mask_grad(s, t0, rows, k0, nk, x.p);
  grad_scores(s, rows, shift, nk, x.lse, x.delta, x.p, x.ds);
  if (g.dv)
    product<true, Trim::depth_begin>(
        {x.p, kGradK, dout, width, x.dv, width, nk, width, rows, true, nullptr, shift});
  if (g.dk)
    product<true, Trim::depth_begin>({x.ds, kGradK, q, width, x.dk, width, nk, width, rows, true, nullptr, shift});
  if (g.dq)
    product<false, Trim::depth_end>({x.ds, kGradK, x.keys, width, g.dq + t0 * g.dq_row + h * g.dq_head, g.dq_row,
                                     rows, s.dim, nk, !(g.set_dq && k0 == g.key_begin), nullptr, shift});
}

// The keys [k0, k0 + nk) and the queries [begin, end) of head h; `first`: nothing was written to dk and dv yet.
void bwd_keys(const AttentionSlice& s, const AttentionGrad& g, int64_t h, int64_t begin, int64_t end, int64_t k0,
              int64_t nk, bool first, const GradScratch& x) {
  const int64_t width = round_up(s.dim);
  const float *k = s.k + k0 * s.k_row, *v = s.v + k0 * s.v_row;
  turn([&](int64_t r) { return k + r * s.k_row; }, nk, s.dim, 1.0f, x.kt, kGradK);
  turn([&](int64_t r) { return v + r * s.v_row; }, nk, s.dim, 1.0f, x.vt, kGradK);
  if (g.dq) copy_rows(k, s.k_row, nk, s.dim, s.scale, x.keys);
  if (g.dk) fetch_rows(g.dk + k0 * g.dk_row, g.dk_row, nk, s.dim);
  if (g.dv) fetch_rows(g.dv + k0 * g.dv_row, g.dv_row, nk, s.dim);
  for (int64_t i = 0; i < nk * width; ++i) x.dk[i] = x.dv[i] = 0.0f;
  for (int64_t t0 = begin; t0 < end; t0 += kGradQ) {
    const int64_t rows = smaller(kGradQ, end - t0), seen = s.causal ? smaller(nk, t0 + rows - k0) : nk;
    if (seen > 0) bwd_pair(s, g, h, t0, rows, t0 - begin, k0, seen, x);
  }
  const float left = s.activation == Scores::softmax ? 1.0f / kLog2e : 1.0f;  // of the factor in the queries
  if (g.dk) put_rows(x.dk, nk, s.dim, left, first && g.set_dk, g.dk + k0 * g.dk_row, g.dk_row);
  if (g.dv) put_rows(x.dv, nk, s.dim, 1.0f, first && g.set_dv, g.dv + k0 * g.dv_row, g.dv_row);
}

void bwd(const AttentionSlice& s, const AttentionGrad& g, float* scratch) {
  const GradScratch x(scratch, s.dim);
  for (int64_t h = 0; h < s.group; ++h)
    for (int64_t begin = g.query_begin; begin < g.query_end; begin += kGradBlock) {
      const int64_t end = smaller(begin + kGradBlock, g.query_end);
      copy_rows(s.q + begin * s.q_row + h * s.q_head, s.q_row, end - begin, s.dim, score_factor(s), x.q);
      copy_rows(g.dout + begin * g.do_row + h * g.do_head, g.do_row, end - begin, s.dim, 1.0f, x.dout);
      for (int64_t k0 = g.key_begin; k0 < g.key_end && (!s.causal || k0 < end); k0 += kGradK) {
        const bool first = h == 0 && (begin == g.query_begin || (s.causal && begin <= k0));
        bwd_keys(s, g, h, begin, end, k0, smaller(kGradK, g.key_end - k0), first, x);
      }
    }
}
