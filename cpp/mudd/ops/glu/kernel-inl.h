// Compiled once for each ISA level, with its Vec; see glu.h for the contract.
#include "mudd/base/simd/activations.h"
#include "mudd/base/simd/rows.h"
#include "mudd/ops/glu/glu.h"

namespace mudd::MUDD_ISA {
namespace {

void fwd(int64_t begin, int64_t end, int64_t cols, Activation kind, const float* gate, int64_t gate_stride,
         const float* up, int64_t up_stride, float* y, int64_t y_stride) {
  with_activation(kind, [&](auto tag) {
    for (int64_t r = begin; r < end; ++r) {
      const float *gr = gate + r * gate_stride, *ur = up + r * up_stride;
      float* yr = y + r * y_stride;
      over_row(cols, [&](int64_t c, int n) {
        store(yr + c, activate<decltype(tag)::kind>(load(gr + c, n)) * load(ur + c, n), n);
      });
    }
  });
}

inline void put(const GluGradient& to, int64_t at, Vec v, int n) {
  if (!to.data) return;
  float* p = to.data + at;
  store(p, to.accumulate ? load(p, n) + v : v, n);
}

void bwd(int64_t begin, int64_t end, int64_t cols, Activation kind, const float* gate, int64_t gate_stride,
         const float* up, int64_t up_stride, const float* dy, int64_t dy_stride, GluGradient dgate,
         GluGradient dup) {
  with_activation(kind, [&](auto tag) {
    for (int64_t r = begin; r < end; ++r) {
      const float *gr = gate + r * gate_stride, *ur = up + r * up_stride, *dr = dy + r * dy_stride;
      over_row(cols, [&](int64_t c, int n) {
        const ValueAndSlope a = activate_with_slope<decltype(tag)::kind>(load(gr + c, n));
        const Vec u = load(ur + c, n), d = load(dr + c, n);
        // In input order: if both are one value, the first sets its gradient and the second adds.
        put(dgate, r * dgate.stride + c, d * u * a.slope, n);
        put(dup, r * dup.stride + c, d * a.value, n);
      });
    }
  });
}

}  // namespace

const GluKernels glu_f32 = {fwd, bwd};

}  // namespace mudd::MUDD_ISA
