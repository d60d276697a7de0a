// Compiled once for each ISA level, with its Vec; see pattention.h for the contract.
#include "mudd/base/simd/activations.h"
#include "mudd/base/simd/rows.h"
#include "mudd/ops/pattention/pattention.h"

namespace mudd::MUDD_ISA {
namespace {

// Row statistics: two values for backward.
struct Stats {
  float first = 0, second = 0;
};

// Return |row| of value(d, lanes), which returns zeros in missing lanes. If the squares leave the range of fp32
// the row is first divided by its largest entry; the norm of a row of zeros is 0.
template <class Value>
inline float row_norm(int64_t n, Value value) {
  const auto squares = [&](Vec by) {
    return row_sum<kFewChains>(n,
                               [&](int64_t d, int l, Vec sum) {
                                 const Vec v = value(d, l) * by;
                                 return fma(v, v, sum);
                               })
        .sum();
  };
  const float plain = squares(Vec::set1(1.0f));
  if (plain > 1e-30f && plain < 1e30f) return __builtin_sqrtf(plain);
  if (plain != plain) return plain;
  Vec most = Vec::zero();
  over_row(n, [&](int64_t d, int l) { most = max(most, abs(value(d, l))); });
  const float largest = most.max_lane();
  if (!(largest > 0)) return 0.0f;
  return largest * __builtin_sqrtf(squares(Vec::set1(1.0f / largest)));
}

inline float over_norm(const Theta& t, float norm) { return norm > 0 ? t.tau / (norm + t.eps) : 0.0f; }

inline float row_max(int64_t n, const float* a) {
  Vec most = Vec::set1(a[0]);
  int64_t d = 0;
  for (; d + Vec::kLanes <= n; d += Vec::kLanes) most = max(most, Vec::load(a + d));
  float m = most.max_lane();
  for (; d < n; ++d) m = a[d] > m ? a[d] : m;
  return m;
}

template <Activation G>
Stats row_stats(const Theta& t, int64_t n, const float* a) {
  const auto gelu = [&](int64_t d, int l) { return activate<G>(load(a + d, l)); };
  switch (t.norm) {
    case SlotNorm::l2_norm_gelu:
    case SlotNorm::l2_norm: return {row_norm(n, [&](int64_t d, int l) { return load(a + d, l); })};
    case SlotNorm::gelu_l2_norm: return {row_norm(n, gelu)};
    case SlotNorm::gelu: return {};
    case SlotNorm::softmax: {
      const float most = row_max(n, a);
      const Vec sum = row_sum<kFewChains>(n, [&](int64_t d, int l, Vec s) {
        return s + first_lanes(exp_nonpositive(load(a + d, l) - Vec::set1(most)), l);
      });
      return {most, 1.0f / sum.sum()};
    }
    case SlotNorm::gelu_layer_norm: {
      const float width = static_cast<float>(n);
      const float mean =
          row_sum<kFewChains>(n, [&](int64_t d, int l, Vec s) { return s + gelu(d, l); }).sum() / width;
      const Vec squares = row_sum<kFewChains>(n, [&](int64_t d, int l, Vec s) {
        const Vec v = first_lanes(gelu(d, l) - Vec::set1(mean), l);
        return fma(v, v, s);
      });
      const float variance = squares.sum() / width + t.eps;
      return {mean, variance == 0 ? 0.0f : 1.0f / __builtin_sqrtf(variance)};
    }
  }
  return {};
}

// Compute Theta of one row times `scale`.
template <Activation G>
void fwd_row(const Theta& t, int64_t n, const float* a, float scale, Stats stats, float* s) {
  const auto each = [&](auto value) {
    over_row(n, [&](int64_t d, int l) { store(s + d, value(load(a + d, l)), l); });
  };
  const Vec f = Vec::set1(scale), over = Vec::set1(over_norm(t, stats.first)), both = f * over;
  const Vec first = Vec::set1(stats.first), second = Vec::set1(stats.second);
  switch (t.norm) {
    case SlotNorm::l2_norm_gelu: return each([&](Vec v) { return f * activate<G>(over * v); });
    case SlotNorm::gelu_l2_norm: return each([&](Vec v) { return both * activate<G>(v); });
    case SlotNorm::l2_norm: return each([&](Vec v) { return both * v; });
    case SlotNorm::gelu: return each([&](Vec v) { return f * activate<G>(v); });
    case SlotNorm::softmax: {
      const Vec share = f * Vec::set1(static_cast<float>(n)) * second;
      return each([&](Vec v) { return share * exp_nonpositive(v - first); });
    }
    case SlotNorm::gelu_layer_norm: return each([&](Vec v) { return f * ((activate<G>(v) - first) * second); });
  }
}

// The rows of a with a norm before or after the activation: u = value(a), s = scale over u, with r = |u|; the
// caller's `slope` applies the slope of u:   da = slope (c g - u c w / (tau r)),   g = scale ds,  w = c sum(g u).
template <class Value, class Slope>
inline void norm_row_bwd(const Theta& t, int64_t n, float scale, float norm, Value value, Slope slope, float* ds,
                         float* s) {
  const Vec f = Vec::set1(scale), over = Vec::set1(over_norm(t, norm));
  const Vec sum = row_sum<kFewChains>(n, [&](int64_t d, int l, Vec w) {
    const Vec u = over * value(d, l), g = f * load(ds + d, l);
    if (s) store(s + d, f * u, l);
    return fma(g, u, w);
  });
  const Vec back = Vec::set1(norm > 0 ? sum.sum() * over_norm(t, norm) / (t.tau * norm) : 0.0f);
  over_row(n, [&](int64_t d, int l) {
    store(ds + d, slope(d, l) * fnma(back, value(d, l), over * (f * load(ds + d, l))), l);
  });
}

// gelu(c a), c = tau / (r + eps): dz = g gelu'(z), da = c dz - a c w / (tau r), w = sum(dz z).
template <Activation G>
void l2_norm_gelu_bwd(const Theta& t, int64_t n, const float* a, float scale, float norm, float* ds, float* s) {
  const Vec f = Vec::set1(scale), over = Vec::set1(over_norm(t, norm));
  const Vec sum = row_sum<kFewChains>(n, [&](int64_t d, int l, Vec w) {
    const Vec z = over * load(a + d, l);
    const ValueAndSlope g = activate_with_slope<G>(z);
    if (s) store(s + d, f * g.value, l);
    const Vec dz = f * load(ds + d, l) * g.slope;
    store(ds + d, dz, l);
    return fma(dz, z, w);
  });
  const Vec back = Vec::set1(norm > 0 ? sum.sum() * over_norm(t, norm) / (t.tau * norm) : 0.0f);
  over_row(n, [&](int64_t d, int l) { store(ds + d, fnma(back, load(a + d, l), over * load(ds + d, l)), l); });
}

void softmax_bwd(int64_t n, const float* a, float scale, Stats stats, float* ds, float* s) {
  const Vec f = Vec::set1(scale * static_cast<float>(n)), most = Vec::set1(stats.first);
  const auto share = [&](int64_t d, int l) {
    return first_lanes(exp_nonpositive(load(a + d, l) - most) * Vec::set1(stats.second), l);
  };
  const Vec sum = row_sum<kFewChains>(n, [&](int64_t d, int l, Vec w) {
    const Vec p = share(d, l);
    if (s) store(s + d, f * p, l);
    return fma(f * load(ds + d, l), p, w);
  });
  const Vec mean = Vec::set1(sum.sum());
  over_row(n, [&](int64_t d, int l) { store(ds + d, share(d, l) * (f * load(ds + d, l) - mean), l); });
}

struct TwoSums {
  Vec g, gu;
};
inline TwoSums operator+(TwoSums a, TwoSums b) { return {a.g + b.g, a.gu + b.gu}; }

template <Activation G>
void gelu_layer_norm_bwd(int64_t n, const float* a, float scale, Stats stats, float* ds, float* s) {
  const Vec f = Vec::set1(scale), mean = Vec::set1(stats.first), inv = Vec::set1(stats.second);
  const TwoSums sums =
      row_reduce<kFewChains>(n, TwoSums{Vec::zero(), Vec::zero()}, [&](int64_t d, int l, TwoSums w) {
        const Vec u = (activate<G>(load(a + d, l)) - mean) * inv, g = f * load(ds + d, l);
        if (s) store(s + d, f * u, l);
        return TwoSums{w.g + g, fma(g, u, w.gu)};  // g is zero in missing lanes
      });
  const float width = static_cast<float>(n);
  const Vec mean_g = Vec::set1(sums.g.sum() / width), mean_gu = Vec::set1(sums.gu.sum() / width);
  over_row(n, [&](int64_t d, int l) {
    const ValueAndSlope v = activate_with_slope<G>(load(a + d, l));
    const Vec u = (v.value - mean) * inv, g = f * load(ds + d, l);
    store(ds + d, v.slope * (inv * fnma(u, mean_gu, g - mean_g)), l);
  });
}

template <Activation G>
void bwd_row(const Theta& t, int64_t n, const float* a, float scale, Stats stats, float* ds, float* s) {
  const auto scores = [&](int64_t d, int l) { return load(a + d, l); };
  const auto gelus = [&](int64_t d, int l) { return activate<G>(load(a + d, l)); };
  switch (t.norm) {
    case SlotNorm::l2_norm_gelu: return l2_norm_gelu_bwd<G>(t, n, a, scale, stats.first, ds, s);
    case SlotNorm::l2_norm:
      return norm_row_bwd(t, n, scale, stats.first, scores, [](int64_t, int) { return Vec::set1(1.0f); }, ds, s);
    case SlotNorm::gelu_l2_norm:
      return norm_row_bwd(
          t, n, scale, stats.first, gelus,
          [&](int64_t d, int l) { return activate_derivative<G>(load(a + d, l)); }, ds, s);
    case SlotNorm::softmax: return softmax_bwd(n, a, scale, stats, ds, s);
    case SlotNorm::gelu_layer_norm: return gelu_layer_norm_bwd<G>(n, a, scale, stats, ds, s);
    case SlotNorm::gelu:
      over_row(n, [&](int64_t d, int l) {
        const ValueAndSlope v = activate_with_slope<G>(load(a + d, l));
        if (s) store(s + d, Vec::set1(scale) * v.value, l);
        store(ds + d, Vec::set1(scale) * load(ds + d, l) * v.slope, l);
      });
  }
}

template <class Body>
inline void with_gelu(Activation gelu, Body body) {
  if (gelu == Activation::gelu_erf) body(ActivationTag<Activation::gelu_erf>{});
  else body(ActivationTag<Activation::gelu_tanh>{});
}

void fwd(int64_t rows, int64_t n, const Theta& t, const float* a, int64_t a_stride, const float* factors, float* s,
         int64_t s_stride, float* stats) {
  with_gelu(t.gelu, [&](auto tag) {
    for (int64_t r = 0; r < rows; ++r) {
      const Stats found = row_stats<decltype(tag)::kind>(t, n, a + r * a_stride);
      stats[2 * r] = found.first;
      stats[2 * r + 1] = found.second;
      const float scale = factors ? t.scale * factors[r] : t.scale;
      fwd_row<decltype(tag)::kind>(t, n, a + r * a_stride, scale, found, s + r * s_stride);
    }
  });
}

void bwd(int64_t rows, int64_t n, const Theta& t, const float* a, int64_t a_stride, const float* factors,
         const float* stats, float* ds, int64_t ds_stride, float* s, int64_t s_stride) {
  with_gelu(t.gelu, [&](auto tag) {
    for (int64_t r = 0; r < rows; ++r) {
      const float scale = factors ? t.scale * factors[r] : t.scale;
      bwd_row<decltype(tag)::kind>(t, n, a + r * a_stride, scale, {stats[2 * r], stats[2 * r + 1]},
                                   ds + r * ds_stride, s ? s + r * s_stride : nullptr);
    }
  });
}

void add_bias(int64_t rows, int64_t width, const float* bias, const float* factors, float* y, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const Vec f = Vec::set1(factors ? factors[r] : 1.0f);
    float* row = y + r * stride;
    over_row(width, [&](int64_t d, int l) { store(row + d, fma(f, load(bias + d, l), load(row + d, l)), l); });
  }
}

void sum_rows(int64_t rows, int64_t width, const float* x, int64_t stride, const float* factors, float* sum) {
  over_row(width, [&](int64_t d, int l) { store(sum + d, Vec::zero(), l); });
  for (int64_t r = 0; r < rows; ++r) {
    const Vec f = Vec::set1(factors ? factors[r] : 1.0f);
    const float* row = x + r * stride;
    over_row(width, [&](int64_t d, int l) { store(sum + d, fma(f, load(row + d, l), load(sum + d, l)), l); });
  }
}

}  // namespace

const PattentionKernels pattention_f32 = {fwd, bwd, add_bias, sum_rows};

}  // namespace mudd::MUDD_ISA
