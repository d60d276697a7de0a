// The backward half of kernel-inl.h, included inside its anonymous namespace: recomputes the scores of one pair of
// tiles from the saved log-sums (Dao 2023, algorithm 2), keys outside, queries inside.

void delta(const AttentionSlice& s, const AttentionGrad& g, int64_t begin, int64_t end, float* out) {
  for (int64_t h = 0; h < s.group; ++h)
    for (int64_t t = begin; t < end; ++t) {
      const float *o = s.o + t * s.o_row + h * s.o_head, *dout = g.dout + t * g.do_row + h * g.do_head;
      Vec dot = Vec::zero();
      for (int64_t d = 0; d < s.dim; d += kL) {
        const int n = static_cast<int>(smaller(s.dim - d, kL));
        if (n == kL) dot = fma(Vec::load(o + d), Vec::load(dout + d), dot);
        else dot = fma(Vec::load_n(o + d, n), Vec::load_n(dout + d, n), dot);
      }
      out[h * s.queries + t] = dot.sum();
    }
}

// Scores become probabilities P, dP becomes dS = P (dP - delta) scale; both [key][kQ].
void soften_grad(const Rows& rows, int64_t shift, int64_t nk, float scale, const float* lse,
                 const float* delta_rows, float* p, float* ds) {
  const Vec factor = Vec::set1(scale);
  over_queries<kPanel>(rows, shift, nk, [&](auto g, int64_t r, int64_t keys) MUDD_INLINE {
    constexpr int G = decltype(g)::value;
    Vec top[G], dot[G];
    unroll<G>([&](auto n) MUDD_INLINE {
      top[n.value] = Vec::load(lse + r + n.value * kL);
      dot[n.value] = Vec::load(delta_rows + r + n.value * kL);
    });
    for (int64_t kk = 0; kk < keys; ++kk)
      unroll<G>([&](auto n) MUDD_INLINE {
        const int64_t at = kk * kQ + r + n.value * kL;
        const Vec prob = exp2_nonpositive(Vec::load(p + at) - top[n.value]);
        prob.store(p + at);
        ((Vec::load(ds + at) - dot[n.value]) * (prob * factor)).store(ds + at);
      });
    zero_after<G>(p, r, keys, nk);
    zero_after<G>(ds, r, keys, nk);
  });
}

// The same for the other activations: scores become P = A f, dP becomes dS = A' f (dP - delta) scale.
void activate_grad(const Rows& rows, int64_t shift, int64_t nk, Scores a, float scale, const float* factors,
                   const float* delta_rows, float* p, float* ds) {
  const Vec by = Vec::set1(scale);
  with_scores(a, [&](auto tag) {
    over_queries<kPanel>(rows, shift, nk, [&](auto g, int64_t r, int64_t keys) MUDD_INLINE {
      constexpr int G = decltype(g)::value;
      for (int64_t kk = 0; kk < keys; ++kk)
        unroll<G>([&](auto n) MUDD_INLINE {
          const int64_t at = kk * kQ + r + n.value * kL;
          const Vec s = Vec::load(p + at), f = Vec::load(factors + r + n.value * kL);
          const Vec d = Vec::load(ds + at) - Vec::load(delta_rows + r + n.value * kL);
          (score_value<decltype(tag)::kind>(s) * f).store(p + at);
          (d * (score_slope<decltype(tag)::kind>(s) * f * by)).store(ds + at);
        });
      zero_after<G>(p, r, keys, nk);
      zero_after<G>(ds, r, keys, nk);
    });
  });
}

constexpr int64_t kKeys =
    128;  // keys per pair of tiles: wider than forward's, so that queries are turned less often

struct GradScratch {
  float *qt, *dot, *q, *dout, *keys, *p, *ds, *dk, *dv, *lse, *delta;

  GradScratch(float* at, int64_t dim) {
    const int64_t width = round_up(dim);
    const auto take = [&](int64_t n) {
      float* here = at;
      at += n;
      return here;
    };
    qt = take(dim * kQ), dot = take(dim * kQ), q = take(kQ * width), dout = take(kQ * width);
    keys = take(kKeys * width), p = take(kKeys * kQ), ds = take(kKeys * kQ), dk = take(kKeys * width),
    dv = take(kKeys * width);
    lse = take(kQ), delta = take(kQ);
  }
};

int64_t bwd_scratch(int64_t dim) {
  return 2 * dim * kQ + (2 * kQ + 3 * kKeys) * round_up(dim) + 2 * kKeys * kQ + 2 * kQ;
}

// dst rows = (add to dst) the sums of a key tile.
void put_rows(const float* sums, int64_t n, int64_t dim, bool set, float* dst, int64_t stride) {
  const int64_t width = round_up(dim);
  for (int64_t r = 0; r < n; ++r)
    for (int64_t d = 0; d < dim; d += kL) {
      const int lanes = static_cast<int>(smaller(dim - d, kL));
      Vec v = Vec::load(sums + r * width + d);
      float* at = dst + r * stride + d;
      if (!set) v = Vec::load_n(at, lanes) + v;
      v.store_n(at, lanes);
    }
}

// One pair of tiles: keys [k0, k0 + nk) and the queries of `tile`.
void bwd_pair(const AttentionSlice& s, const AttentionGrad& g, const QueryTile& tile, int64_t k0, int64_t nk,
              const GradScratch& x) {
  const int64_t width = round_up(s.dim), h = tile.head_begin, t0 = tile.begin;
  const Rows rows = tile_rows(s, tile);
  const int64_t shift = tile_shift(s, rows, k0);
  const float *q = s.q + t0 * s.q_row + h * s.q_head, *dout = g.dout + t0 * g.do_row + h * g.do_head;
  const bool softmax = s.activation == Scores::softmax;
  turn([&](int64_t r) { return q + r * s.q_row; }, rows.count, s.dim, softmax ? s.scale * kLog2e : s.scale, x.qt);
  turn([&](int64_t r) { return dout + r * g.do_row; }, rows.count, s.dim, 1.0f, x.dot);
  for (int64_t r = 0; r < rows.lanes; ++r) {
    const bool real = r < rows.count;
    x.lse[r] = real ? s.lse[h * s.queries + t0 + r] : softmax ? kEmptyRow : 0.0f;
    x.delta[r] = real && has_row_sum(s.activation) ? g.delta[h * s.queries + t0 + r] : 0.0f;
  }
  product<false, Trim::columns>(
      {s.k + k0 * s.k_row, s.k_row, x.qt, kQ, x.p, kQ, nk, rows.lanes, s.dim, false, nullptr, shift});
  product<false, Trim::columns>(
      {s.v + k0 * s.v_row, s.v_row, x.dot, kQ, x.ds, kQ, nk, rows.lanes, s.dim, false, nullptr, shift});
  mask(s, rows, k0, nk, x.p);
  // Trimmed columns of dP hold garbage, but soften_grad's groups of queries are the panels of the products: they
  // end before the keys whose columns were left out.
  if (softmax) soften_grad(rows, shift, nk, s.scale, x.lse, x.delta, x.p, x.ds);
  else activate_grad(rows, shift, nk, s.activation, s.scale, x.lse, x.delta, x.p, x.ds);
  if (g.dv) {
    copy_rows(dout, g.do_row, rows.count, s.dim, x.dout);
    product<false, Trim::depth_begin>(
        {x.p, kQ, x.dout, width, x.dv, width, nk, width, rows.count, true, nullptr, shift});
  }
  if (g.dk) {
    copy_rows(q, s.q_row, rows.count, s.dim, x.q);
    product<false, Trim::depth_begin>(
        {x.ds, kQ, x.q, width, x.dk, width, nk, width, rows.count, true, nullptr, shift});
  }
  if (g.dq)
    product<true, Trim::depth_end>({x.ds, kQ, x.keys, width, g.dq + t0 * g.dq_row + h * g.dq_head, g.dq_row,
                                    rows.count, s.dim, nk, !(g.set_dq && k0 == g.key_begin), nullptr, shift});
}

void bwd(const AttentionSlice& s, const AttentionGrad& g, float* scratch) {
  const GradScratch x(scratch, s.dim);
  const int64_t width = round_up(s.dim);
  for (int64_t k0 = g.key_begin; k0 < g.key_end; k0 += kKeys) {
    const int64_t nk = smaller(kKeys, g.key_end - k0);
    for (int64_t i = 0; i < nk * width; ++i) x.dk[i] = x.dv[i] = 0.0f;
    if (g.dq) copy_rows(s.k + k0 * s.k_row, s.k_row, nk, s.dim, x.keys);
    for (int64_t h = 0; h < s.group; ++h)
      for (int64_t t0 = g.query_begin; t0 < g.query_end; t0 += kQ) {
        const QueryTile tile{h, h + 1, t0, smaller(t0 + kQ, g.query_end)};
        const int64_t seen = s.causal ? smaller(nk, tile.end - k0) : nk;
        if (seen > 0) bwd_pair(s, g, tile, k0, seen, x);
      }
    if (g.dk) put_rows(x.dk, nk, s.dim, g.set_dk, g.dk + k0 * g.dk_row, g.dk_row);
    if (g.dv) put_rows(x.dv, nk, s.dim, g.set_dv, g.dv + k0 * g.dv_row, g.dv_row);
  }
}
