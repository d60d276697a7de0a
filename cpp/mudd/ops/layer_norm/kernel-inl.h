// Compiled once for each ISA level, with its Vec; see layer_norm.h for the contract.
#include "mudd/base/simd/rows.h"
#include "mudd/ops/layer_norm/layer_norm.h"

namespace mudd::MUDD_ISA {
namespace {

// Rows that run each pass together: the work of a row hides the latency of the reductions, divisions and roots
// of the row before. Four, or as few as keep this many elements in cache.
constexpr int64_t kMostTogether = 4, kNumbersTogether = 4096;

inline int64_t rows_together(int64_t d_model) {
  int64_t rows = kMostTogether;
  while (rows > 1 && rows * d_model > kNumbersTogether) --rows;
  return rows;
}

inline float mean_of(int64_t d_model, const float* xr) {
  const Vec total = row_sum(d_model, [&](int64_t d, int n, Vec sum) { return sum + load(xr + d, n); });
  return total.sum() / static_cast<float>(d_model);
}

// The load is the second operand of the subtraction, which can be a memory operand; the sign does not matter
// for squares.
inline float inverse_of(int64_t d_model, const float* xr, float mean, float eps) {
  const Vec centre = Vec::set1(mean);
  const Vec squares = row_sum<kFewChains>(d_model, [&](int64_t d, int n, Vec sum) {
    const Vec v = first_lanes(centre - load(xr + d, n), n);
    return fma(v, v, sum);
  });
  return 1.0f / __builtin_sqrtf(squares.sum() / static_cast<float>(d_model) + eps);
}

void fwd(int64_t begin, int64_t end, int64_t d_model, const float* x, int64_t x_stride, const float* gain,
         const float* bias, const LayerNormOptions& o, float* y, int64_t y_stride, float* stats) {
  const Vec offset = Vec::set1(o.gain_offset), all = Vec::set1(o.scale);
  const int64_t together = rows_together(d_model);
  for (int64_t first = begin; first < end; first += together) {
    const int64_t last = first + together < end ? first + together : end;
    for (int64_t r = first; r < last; ++r) stats[2 * r] = mean_of(d_model, x + r * x_stride);
    for (int64_t r = first; r < last; ++r)
      stats[2 * r + 1] = inverse_of(d_model, x + r * x_stride, stats[2 * r], o.eps);
    for (int64_t r = first; r < last; ++r) {
      const float* xr = x + r * x_stride;
      float* yr = y + r * y_stride;
      const Vec centre = Vec::set1(stats[2 * r]), scale = Vec::set1(stats[2 * r + 1]);
      over_row(d_model, [&](int64_t d, int n) {
        Vec v = (load(xr + d, n) - centre) * scale;
        if (gain) v = v * (offset + load(gain + d, n));
        if (bias) v = v + load(bias + d, n);
        store(yr + d, all * v, n);
      });
    }
  }
}

// Sums of u and of u n over one row.
struct Sums {
  Vec u, un;
};
inline Sums operator+(Sums a, Sums b) { return {a.u + b.u, a.un + b.un}; }

// Return the sums for dx of one row.
inline Sums sums_of(int64_t d_model, const float* xr, const float* gr, const float* gain,
                    const LayerNormOptions& o, Vec centre, Vec scale) {
  const Vec offset = Vec::set1(o.gain_offset), all = Vec::set1(o.scale);
  return row_reduce<kFewChains>(d_model, Sums{Vec::zero(), Vec::zero()}, [&](int64_t d, int n, Sums s) {
    const Vec normal = (load(xr + d, n) - centre) * scale, g = all * load(gr + d, n);
    const Vec u = gain ? g * (offset + load(gain + d, n)) : g;
    return Sums{s.u + u, fma(u, normal, s.un)};
  });
}

// A row of dx, and its part of dgain and dbias.
struct Gradient {
  const float *x, *dy;
  float* dx;
  Vec centre, scale, mean_u, mean_un;

  void write(int64_t d, int n, const float* gain, Vec offset, Vec all, bool accumulate, Vec* dgain,
             Vec* dbias) const {
    const Vec normal = (load(x + d, n) - centre) * scale, g = all * load(dy + d, n);
    *dgain = fma(g, normal, *dgain);
    *dbias = *dbias + g;
    if (!dx) return;
    const Vec u = gain ? g * (offset + load(gain + d, n)) : g;
    const Vec v = scale * fnma(normal, mean_un, u - mean_u);
    store(dx + d, accumulate ? load(dx + d, n) + v : v, n);
  }
};

// Process rows in order; dgain and dbias are loaded and stored once for all of them.
template <int kRows>
inline void write_rows(int64_t d_model, const Gradient (&rows)[kRows], const float* gain,
                       const LayerNormOptions& o, bool accumulate, float* dgain, float* dbias) {
  const Vec offset = Vec::set1(o.gain_offset), all = Vec::set1(o.scale);
  over_row(d_model, [&](int64_t d, int n) {
    Vec of_gain = dgain ? load(dgain + d, n) : Vec::zero(), of_bias = dbias ? load(dbias + d, n) : Vec::zero();
#pragma GCC unroll 2
    for (int r = 0; r < kRows; ++r) rows[r].write(d, n, gain, offset, all, accumulate, &of_gain, &of_bias);
    if (dgain) store(dgain + d, of_gain, n);
    if (dbias) store(dbias + d, of_bias, n);
  });
}

void bwd(int64_t begin, int64_t end, int64_t d_model, const float* x, int64_t x_stride, const float* gain,
         const LayerNormOptions& o, const float* stats, const float* dy, int64_t dy_stride, float* dx,
         int64_t dx_stride, bool accumulate, float* dgain, float* dbias) {
  for (float* sum : {dgain, dbias})
    if (sum) over_row(d_model, [&](int64_t d, int n) { store(sum + d, Vec::zero(), n); });
  const float width = static_cast<float>(d_model);
  const auto row = [&](int64_t r) {
    const float *xr = x + r * x_stride, *gr = dy + r * dy_stride;
    const Vec centre = Vec::set1(stats[2 * r]), scale = Vec::set1(stats[2 * r + 1]);
    if (!dx) return Gradient{xr, gr, nullptr, centre, scale, Vec::zero(), Vec::zero()};
    const Sums s = sums_of(d_model, xr, gr, gain, o, centre, scale);
    return Gradient{
        xr, gr, dx + r * dx_stride, centre, scale, Vec::set1(s.u.sum() / width), Vec::set1(s.un.sum() / width)};
  };
  int64_t r = begin;
  for (; r + 2 <= end; r += 2) write_rows<2>(d_model, {row(r), row(r + 1)}, gain, o, accumulate, dgain, dbias);
  for (; r < end; ++r) write_rows<1>(d_model, {row(r)}, gain, o, accumulate, dgain, dbias);
}

}  // namespace

const LayerNormKernels layer_norm_f32 = {fwd, bwd};

}  // namespace mudd::MUDD_ISA
