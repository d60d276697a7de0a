// Built once per level over Vec; see layer_norm.h for the contract.
#include "mudd/base/simd/rows.h"
#include "mudd/ops/layer_norm/layer_norm.h"

namespace mudd::MUDD_ISA {
namespace {

void fwd(int64_t begin, int64_t end, int64_t d_model, const float* x, int64_t x_stride, const float* gain,
         const float* bias, const LayerNormOptions& o, float* y, int64_t y_stride, float* stats) {
  const float width = static_cast<float>(d_model);
  for (int64_t r = begin; r < end; ++r) {
    const float* xr = x + r * x_stride;
    float* yr = y + r * y_stride;
    const Vec total = row_sum(d_model, [&](int64_t d, int n, Vec sum) { return sum + load(xr + d, n); });
    const float mean = total.sum() / width;
    const Vec centre = Vec::set1(mean);
    const Vec squares = row_sum(d_model, [&](int64_t d, int n, Vec sum) {
      const Vec v = first_lanes(load(xr + d, n) - centre, n);
      return fma(v, v, sum);
    });
    const float inv = 1.0f / __builtin_sqrtf(squares.sum() / width + o.eps);
    stats[2 * r] = mean;
    stats[2 * r + 1] = inv;
    const Vec scale = Vec::set1(inv), offset = Vec::set1(o.gain_offset), all = Vec::set1(o.scale);
    over_row(d_model, [&](int64_t d, int n) {
      Vec v = (load(xr + d, n) - centre) * scale;
      if (gain) v = v * (offset + load(gain + d, n));
      if (bias) v = v + load(bias + d, n);
      store(yr + d, all * v, n);
    });
  }
}

// Sums of u and of u n over one row.
struct Sums {
  Vec u, un;
};
inline Sums operator+(Sums a, Sums b) { return {a.u + b.u, a.un + b.un}; }

// One row: adds it to dgain and dbias, and sums what dx needs.
inline Sums gather_row(int64_t d_model, const float* xr, const float* gr, const float* gain,
                       const LayerNormOptions& o, Vec centre, Vec scale, float* dgain, float* dbias) {
  const Vec offset = Vec::set1(o.gain_offset), all = Vec::set1(o.scale);
  return row_reduce<kFewChains>(d_model, Sums{Vec::zero(), Vec::zero()}, [&](int64_t d, int n, Sums s) {
    const Vec normal = (load(xr + d, n) - centre) * scale, g = all * load(gr + d, n);
    if (dgain) store(dgain + d, fma(g, normal, load(dgain + d, n)), n);
    if (dbias) store(dbias + d, load(dbias + d, n) + g, n);
    const Vec u = gain ? g * (offset + load(gain + d, n)) : g;
    return Sums{s.u + u, fma(u, normal, s.un)};
  });
}

void bwd(int64_t begin, int64_t end, int64_t d_model, const float* x, int64_t x_stride, const float* gain,
         const LayerNormOptions& o, const float* stats, const float* dy, int64_t dy_stride, float* dx,
         int64_t dx_stride, bool accumulate, float* dgain, float* dbias) {
  for (float* sum : {dgain, dbias})
    if (sum) over_row(d_model, [&](int64_t d, int n) { store(sum + d, Vec::zero(), n); });
  const float width = static_cast<float>(d_model);
  const Vec offset = Vec::set1(o.gain_offset), all = Vec::set1(o.scale);
  for (int64_t r = begin; r < end; ++r) {
    const float *xr = x + r * x_stride, *gr = dy + r * dy_stride;
    const Vec centre = Vec::set1(stats[2 * r]), scale = Vec::set1(stats[2 * r + 1]);
    const Sums s = gather_row(d_model, xr, gr, gain, o, centre, scale, dgain, dbias);
    if (!dx) continue;
    float* dxr = dx + r * dx_stride;
    const Vec mean_u = Vec::set1(s.u.sum() / width), mean_un = Vec::set1(s.un.sum() / width);
    over_row(d_model, [&](int64_t d, int n) {
      const Vec normal = (load(xr + d, n) - centre) * scale, g = all * load(gr + d, n);
      const Vec u = gain ? g * (offset + load(gain + d, n)) : g;
      const Vec v = scale * fnma(normal, mean_un, u - mean_u);
      store(dxr + d, accumulate ? load(dxr + d, n) + v : v, n);
    });
  }
}

}  // namespace

const LayerNormKernels layer_norm_f32 = {fwd, bwd};

}  // namespace mudd::MUDD_ISA
