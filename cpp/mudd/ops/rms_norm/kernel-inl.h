// Compiled once for each ISA level, with its Vec (base/simd/vec.h); see rms_norm.h for the contract.
#include "mudd/base/simd/rows.h"
#include "mudd/ops/rms_norm/rms_norm.h"

namespace mudd::MUDD_ISA {
namespace {

// Return the start of a piece in a value with rows `stride` apart.
inline int64_t at(int64_t piece, int64_t heads, int64_t width, int64_t stride) {
  return heads == 1 ? piece * stride : piece / heads * stride + piece % heads * width;
}

void fwd(int64_t begin, int64_t end, int64_t heads, int64_t d_model, const float* x, int64_t x_stride,
         const float* gain, float eps, float* y, int64_t y_stride, float* inv) {
  for (int64_t r = begin; r < end; ++r) {
    const float* xr = x + at(r, heads, d_model, x_stride);
    float* yr = y + at(r, heads, d_model, y_stride);
    const Vec squares = row_sum(d_model, [&](int64_t d, int n, Vec sum) {
      const Vec v = load(xr + d, n);
      return fma(v, v, sum);
    });
    const float mean = squares.sum() / static_cast<float>(d_model) + eps;
    inv[r] = 1.0f / __builtin_sqrtf(mean);
    const Vec scale = Vec::set1(inv[r]);
    over_row(d_model, [&](int64_t d, int n) {
      const Vec normal = load(xr + d, n) * scale;
      store(yr + d, gain ? normal * load(gain + d, n) : normal, n);
    });
  }
}

void bwd(int64_t begin, int64_t end, int64_t heads, int64_t d_model, const float* x, int64_t x_stride,
         const float* gain, const float* inv, const float* dy, int64_t dy_stride, float* dx, int64_t dx_stride,
         bool accumulate, float* dgain) {
  if (dgain) over_row(d_model, [&](int64_t d, int n) { store(dgain + d, Vec::zero(), n); });
  for (int64_t r = begin; r < end; ++r) {
    const float *xr = x + at(r, heads, d_model, x_stride), *gr = dy + at(r, heads, d_model, dy_stride);
    const Vec scale = Vec::set1(inv[r]);
    const Vec dot = row_sum(d_model, [&](int64_t d, int n, Vec sum) {
      const Vec normal = load(xr + d, n) * scale, g = load(gr + d, n);
      if (dgain) store(dgain + d, fma(g, normal, load(dgain + d, n)), n);
      return fma(gain ? g * load(gain + d, n) : g, normal, sum);
    });
    if (!dx) continue;
    float* dxr = dx + at(r, heads, d_model, dx_stride);
    const Vec mean = Vec::set1(dot.sum() / static_cast<float>(d_model));
    over_row(d_model, [&](int64_t d, int n) {
      const Vec normal = load(xr + d, n) * scale, g = load(gr + d, n);
      const Vec u = gain ? g * load(gain + d, n) : g;
      const Vec v = scale * fnma(normal, mean, u);
      store(dxr + d, accumulate ? load(dxr + d, n) + v : v, n);
    });
  }
}

}  // namespace

const RmsNormKernels rms_norm_f32 = {fwd, bwd};

}  // namespace mudd::MUDD_ISA
