// attention as a formula, for any number type (complex numbers branch on the real part).
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include "mudd/ops/attention/attention.h"

namespace mudd::reference {

inline double real_part(double x) { return x; }
inline double real_part(const std::complex<double>& x) { return x.real(); }

struct AttentionCase {
  int64_t batch = 1, time = 0, heads = 1, kv_heads = 1, dim = 0;
  double scale = 1.0;
  bool causal = true;
  int64_t window = kNoWindow;
  const int32_t* segments = nullptr;  // [batch, time]
  const int32_t* key_mask = nullptr;  // [batch, time]
  Scores activation = Scores::softmax;
  double divisor = 1.0, eps = 0.0;
  Dropout drop;  // of P before v

  // Return the dropout factor of a probability: 1 without dropout.
  double factor(int64_t b, int64_t h, int64_t t, int64_t key) const {
    return drop ? static_cast<double>(drop.factor(b, t, h << 22 | key)) : 1.0;
  }

  bool visible(int64_t b, int64_t t, int64_t key) const {
    return (!causal || key <= t) && t - key < window &&
           (!segments || segments[b * time + t] == segments[b * time + key]) &&
           (!key_mask || key_mask[b * time + key] != 0);
  }
};

// Return A(s) and A'(s) of the activations other than softmax.
template <class N>
N score_value(Scores a, N s) {
  using std::exp;
  const bool positive = real_part(s) > 0;
  if (a == Scores::sqrelu || a == Scores::norm_sqrelu) return positive ? s * s : N(0);
  return positive ? s + N(1) : exp(s);
}
inline double score_slope(Scores a, double s) {
  if (a == Scores::sqrelu || a == Scores::norm_sqrelu) return s > 0 ? 2 * s : 0;
  return s > 0 ? 1 : std::exp(s);
}

// q, o: [B, T, H, hd]; k, v: [B, T, G, hd]; contiguous. lse [B, H, T] may be null: for softmax the natural log
// of the row's sum, -inf for empty rows; for the others the factor of P.
template <class N>
void attention(const AttentionCase& c, const N* q, const N* k, const N* v, N* o, N* lse) {
  using std::exp, std::log;
  const int64_t group = c.heads / c.kv_heads;
  std::vector<N> p(static_cast<size_t>(c.time));
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t t = 0; t < c.time; ++t) {
        const N* qt = q + ((b * c.time + t) * c.heads + h) * c.dim;
        N* ot = o + ((b * c.time + t) * c.heads + h) * c.dim;
        const auto row = [&](const N* x, int64_t key) {
          return x + ((b * c.time + key) * c.kv_heads + h / group) * c.dim;
        };
        double highest = -INFINITY;
        for (int64_t key = 0; key < c.time; ++key) {
          if (!c.visible(b, t, key)) continue;
          p[key] = N(0);
          for (int64_t d = 0; d < c.dim; ++d) p[key] += qt[d] * row(k, key)[d];
          p[key] *= N(c.scale);
          highest = std::max(highest, real_part(p[key]));
        }
        N sum = N(0);
        for (int64_t d = 0; d < c.dim; ++d) ot[d] = N(0);
        for (int64_t key = 0; key < c.time; ++key) {
          if (!c.visible(b, t, key)) continue;
          const N e =
              c.activation == Scores::softmax ? exp(p[key] - N(highest)) : score_value(c.activation, p[key]);
          sum += e;
          const N weight = e * N(c.factor(b, h, t, key));
          for (int64_t d = 0; d < c.dim; ++d) ot[d] += weight * row(v, key)[d];
        }
        if (c.activation != Scores::softmax) {
          const N divisor = has_row_sum(c.activation) ? sum + N(c.eps) : N(c.divisor);
          for (int64_t d = 0; d < c.dim; ++d) ot[d] /= divisor;
          if (lse) lse[(b * c.heads + h) * c.time + t] = N(1) / divisor;
          continue;
        }
        const bool empty = real_part(sum) == 0.0;
        for (int64_t d = 0; d < c.dim && !empty; ++d) ot[d] /= sum;
        if (lse) lse[(b * c.heads + h) * c.time + t] = empty ? N(-INFINITY) : N(highest) + log(sum);
      }
}

}  // namespace mudd::reference
