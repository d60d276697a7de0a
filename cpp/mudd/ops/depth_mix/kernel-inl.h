// Compiled once for each ISA level, with its Vec; see depth_mix.h for the contract.
//
// One token at a time: its states fit into L1 or L2, so both loops of backward read memory once.
#include <utility>

#include "mudd/base/simd/activations.h"
#include "mudd/base/simd/inline.h"
#include "mudd/base/simd/rows.h"
#include "mudd/ops/depth_mix/depth_mix.h"

namespace mudd::MUDD_ISA {
namespace {

constexpr int kL = Vec::kLanes;

// Call body(std::make_index_sequence<n>()): the stream count as a constant, so that sums stay in registers.
template <class Body>
MUDD_INLINE void with_streams(int n, Body body) {
  switch (n) {
    case 1: return body(std::make_index_sequence<1>());
    case 2: return body(std::make_index_sequence<2>());
    case 3: return body(std::make_index_sequence<3>());
    case 4: return body(std::make_index_sequence<4>());
  }
}

struct Pair {
  Vec lo, hi;
};

MUDD_INLINE void add_source(Pair& sum, float a, Vec lo, Vec hi) {
  const Vec w = Vec::set1(a);
  sum.lo = fma(w, lo, sum.lo);
  sum.hi = fma(w, hi, sum.hi);
}

// The rows of one token.
struct Token {
  const float* states[kMaxMixSources];
  const float* weights;
  const float* direct;

  Token(const DepthMixRows& m, int64_t row)
      : weights(m.weights + row * m.weight_stride), direct(m.direct ? m.direct + row * m.direct_stride : nullptr) {
    for (int j = 0; j < m.sources; ++j) states[j] = m.states[j] + row * m.state_strides[j];
  }

  // Return the start of stream c: zero, or `direct` if it is added before the norm.
  MUDD_INLINE const float* start(const DepthMixRows& m, int c) const {
    return m.post_norm && c == m.streams - 1 ? nullptr : direct;
  }
};

// Return the sum over the sixteen lanes of stream c.
template <int c, size_t kStreams>
inline float folded(const Vec (&sum)[kParts][kStreams]) {
  Vec parts[kParts];
  for (int w = 0; w < kParts; ++w) parts[w] = sum[w][c];
  return fold_parts<kParts>(parts).sum();
}

// Compute y[c][d] = v_c of depth_mix.h for the streams S, squares[c] = sum over d of v_c^2.
template <size_t... S>
MUDD_INLINE void mix_row(std::index_sequence<S...>, const DepthMixRows& m, const Token& t, float* const* y,
                         float* squares) {
  Vec sum[kParts][sizeof...(S)];  // of each part of the sixteen lanes of rows.h
  for (auto& part : sum) ((part[S] = Vec::zero()), ...);
  const int64_t l = m.sources;
  const float* const starts[] = {t.start(m, S)...};
  int64_t d = 0;
  for (; d + 2 * kL <= m.width; d += 2 * kL) {
    Pair acc[sizeof...(S)];
    ((acc[S] = starts[S] ? Pair{Vec::load(starts[S] + d), Vec::load(starts[S] + d + kL)}
                         : Pair{Vec::zero(), Vec::zero()}),
     ...);
    for (int64_t j = 0; j < l; ++j) {
      const float* x = t.states[j] + d;
      const Vec lo = Vec::load(x), hi = Vec::load(x + kL);
      (add_source(acc[S], t.weights[S * l + j], lo, hi), ...);
    }
    const int64_t w = kParts > 2 ? d / kL % kParts : 0;
    Vec(&low)[sizeof...(S)] = sum[w], (&high)[sizeof...(S)] = sum[(w + 1) % kParts];
    ((acc[S].lo.store(y[S] + d), acc[S].hi.store(y[S] + d + kL), low[S] = fma(acc[S].lo, acc[S].lo, low[S]),
      high[S] = fma(acc[S].hi, acc[S].hi, high[S])),
     ...);
  }
  for (; d < m.width; d += kL) {
    const int n = m.width - d < kL ? static_cast<int>(m.width - d) : kL;
    Vec acc[sizeof...(S)];
    ((acc[S] = starts[S] ? load(starts[S] + d, n) : Vec::zero()), ...);
    for (int64_t j = 0; j < l; ++j) {
      const Vec x = load(t.states[j] + d, n);
      ((acc[S] = fma(Vec::set1(t.weights[S * l + j]), x, acc[S])), ...);
    }
    Vec(&part)[sizeof...(S)] = sum[d / kL % kParts];
    ((store(y[S] + d, acc[S], n), part[S] = fma(acc[S], acc[S], part[S])), ...);
  }
  ((squares[S] = folded<S>(sum)), ...);
}

void fwd(int64_t begin, int64_t end, const DepthMixRows& m, const DepthMixOutputs& out) {
  with_streams(m.streams, [&](auto streams) {
    for (int64_t r = begin; r < end; ++r) {
      const Token t(m, r);
      float* y[kMaxStreams];
      for (int c = 0; c < m.streams; ++c) y[c] = out.streams[c] + r * out.strides[c];
      float squares[kMaxStreams];
      mix_row(streams, m, t, y, squares);
      for (int c = 0; c < m.normed; ++c) {
        const float inverse = 1.0f / __builtin_sqrtf(squares[c] / static_cast<float>(m.width) + m.eps);
        m.inverse[r * m.normed + c] = inverse;
        const Vec scale = Vec::set1(inverse);
        const float *gain = m.gains[c], *late = t.start(m, c) ? nullptr : t.direct;
        over_row(m.width, [&](int64_t d, int n) {
          const Vec v = load(y[c] + d, n) * scale * load(gain + d, n);
          store(y[c] + d, late ? v + load(late + d, n) : v, n);
        });
      }
    }
  });
}

// Replace v (of a normalised stream) by its gradient; add dy n to dgain (or null).
void norm_row(int64_t width, float inverse, const float* gain, const float* dy, float* v, float* dgain) {
  const Vec scale = Vec::set1(inverse);
  const Vec dot = row_sum(width, [&](int64_t d, int n, Vec sum) {
    const Vec normal = load(v + d, n) * scale, g = load(dy + d, n);
    if (dgain) store(dgain + d, fma(g, normal, load(dgain + d, n)), n);
    return fma(g * load(gain + d, n), normal, sum);
  });
  const Vec mean = Vec::set1(dot.sum() / static_cast<float>(width));
  over_row(width, [&](int64_t d, int n) {
    const Vec normal = load(v + d, n) * scale;
    store(v + d, scale * fnma(normal, mean, load(dy + d, n) * load(gain + d, n)), n);
  });
}

// Call body(part, d, n) for the pieces of a row: elements [d, d + n) belong to that part of the sixteen lanes.
template <class Body>
MUDD_INLINE void over_parts(int64_t width, Body body) {
  int64_t d = 0;
  for (; d + kSumLanes <= width; d += kSumLanes)
#pragma GCC unroll 4
    for (int w = 0; w < kParts; ++w) body(w, d + w * kL, kL);
  const int left = static_cast<int>(width - d);
#pragma GCC unroll 4
  for (int w = 0; w < kParts; ++w)
    if (left > w * kL) body(w, d + w * kL, lanes_of_part(left, w * kL));
}

MUDD_INLINE void both(Vec& dot, Vec& dx, Vec a, Vec g, Vec x) {
  dot = fma(g, x, dot);
  dx = fma(a, g, dx);
}

// Compute da[c l] = <g_c, x>; dx (or null) = (its previous value if kAdd) + sum_c a[c l] g_c.
template <bool kAdd, size_t... S>
MUDD_INLINE void source_row(std::index_sequence<S...>, int64_t width, int64_t l, const float* x, const float* a,
                            const float* const* g, float* dx, float* da) {
  Vec dot[kParts][sizeof...(S)], w[sizeof...(S)];
  for (auto& part : dot) ((part[S] = Vec::zero()), ...);
  ((w[S] = Vec::set1(a[S * l])), ...);
  const float* const from[] = {g[S]...};
  if (dx) {
    over_parts(width, [&](int part, int64_t d, int n) __attribute__((always_inline)) {
      const Vec v = load(x + d, n);
      Vec sum = kAdd ? load(dx + d, n) : Vec::zero();
      (both(dot[part][S], sum, w[S], load(from[S] + d, n), v), ...);
      store(dx + d, sum, n);
    });
  } else {
    over_parts(width, [&](int part, int64_t d, int n) __attribute__((always_inline)) {
      const Vec v = load(x + d, n);
      ((dot[part][S] = fma(load(from[S] + d, n), v, dot[part][S])), ...);
    });
  }
  ((da[S * l] = folded<S>(dot)), ...);
}

// Compute the gradient of `direct`: the gradients of the sums that include it, plus dy of the post-normalised
// stream.
void direct_row(const DepthMixRows& m, const float* const* g, const float* late, bool add, float* dx) {
  over_row(m.width, [&](int64_t d, int n) {
    Vec sum = add ? load(dx + d, n) : Vec::zero();
    for (int c = 0; c < m.streams; ++c) {
      const float* from = m.post_norm && c == m.streams - 1 ? late : g[c];
      if (from) sum = sum + load(from + d, n);
    }
    store(dx + d, sum, n);
  });
}

// Set g[c] to the gradient of v_c, in scratch for normalised streams and streams without a gradient, else dy
// itself.
void stream_gradients(const DepthMixRows& m, const Token& t, const DepthMixGradients& grads, int64_t r,
                      float* scratch, const float** g) {
  float* v[kMaxStreams];
  float squares[kMaxStreams];
  for (int c = 0; c < m.streams; ++c) v[c] = scratch + c * m.width;
  with_streams(m.normed, [&](auto streams) { mix_row(streams, m, t, v, squares); });
  for (int c = 0; c < m.streams; ++c) {
    const float* dy = grads.streams[c] ? grads.streams[c] + r * grads.strides[c] : nullptr;
    g[c] = dy && c >= m.normed ? dy : v[c];
    if (!dy) over_row(m.width, [&](int64_t d, int n) { store(v[c] + d, Vec::zero(), n); });
    else if (c < m.normed) norm_row(m.width, m.inverse[r * m.normed + c], m.gains[c], dy, v[c], grads.gains[c]);
  }
}

void bwd(int64_t begin, int64_t end, const DepthMixRows& m, const DepthMixGradients& grads, float* scratch) {
  const int64_t l = m.sources;
  for (int c = 0; c < m.normed; ++c)
    if (grads.gains[c] && !grads.continues)
      over_row(m.width, [&](int64_t d, int n) { store(grads.gains[c] + d, Vec::zero(), n); });
  for (int64_t r = begin; r < end; ++r) {
    const Token t(m, r);
    const float* g[kMaxStreams];
    stream_gradients(m, t, grads, r, scratch, g);
    float* da = grads.weights + r * m.streams * l;
    with_streams(m.streams, [&](auto streams) {
      for (int64_t j = 0; j < l; ++j) {
        float* dx = grads.states[j] ? grads.states[j] + r * grads.state_strides[j] : nullptr;
        const float* a = t.weights + j;
        if (grads.accumulate[j]) source_row<true>(streams, m.width, l, t.states[j], a, g, dx, da + j);
        else source_row<false>(streams, m.width, l, t.states[j], a, g, dx, da + j);
      }
    });
    const int last = m.streams - 1;
    const float* late =
        m.post_norm && grads.streams[last] ? grads.streams[last] + r * grads.strides[last] : nullptr;
    if (grads.direct) direct_row(m, g, late, grads.direct_accumulate, grads.direct + r * grads.direct_stride);
  }
}

void generator(int64_t begin, int64_t end, int64_t width, Activation activation, const float* pre,
               const float* scale, float* dhidden, float* hidden, float* dscaled) {
  with_activation(activation, [&](auto tag) {
    for (int64_t r = begin; r < end; ++r) {
      float* dh = dhidden + (r - begin) * width;
      const int64_t at = r * width;
      over_row(width, [&](int64_t d, int n) {
        const ValueAndSlope a = activate_with_slope<decltype(tag)::kind>(load(pre + at + d, n));
        const Vec dpre = load(dh + d, n) * a.slope;
        store(hidden + at + d, a.value, n);
        store(dh + d, dpre, n);
        store(dscaled + at + d, scale ? dpre * Vec::set1(scale[r]) : dpre, n);
      });
    }
  });
}

}  // namespace

const DepthMixKernels depth_mix_f32 = {fwd, bwd, generator};

}  // namespace mudd::MUDD_ISA
