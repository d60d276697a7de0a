// Built once per level over Vec; see activation.h for the contract.
#include "mudd/base/simd/activations.h"
#include "mudd/base/simd/rows.h"
#include "mudd/ops/activation/activation.h"

namespace mudd::MUDD_ISA {
namespace {

void fwd(int64_t begin, int64_t end, int64_t cols, Activation kind, const float* x, int64_t x_stride, float* y,
         int64_t y_stride) {
  with_activation(kind, [&](auto tag) {
    for (int64_t r = begin; r < end; ++r)
      over_row(cols, [&](int64_t c, int n) {
        store(y + r * y_stride + c, activate<decltype(tag)::kind>(load(x + r * x_stride + c, n)), n);
      });
  });
}

void bwd(int64_t begin, int64_t end, int64_t cols, Activation kind, const float* x, int64_t x_stride,
         const float* dy, int64_t dy_stride, float* dx, int64_t dx_stride, bool accumulate) {
  with_activation(kind, [&](auto tag) {
    for (int64_t r = begin; r < end; ++r)
      over_row(cols, [&](int64_t c, int n) {
        const Vec slope = activate_derivative<decltype(tag)::kind>(load(x + r * x_stride + c, n));
        const Vec g = load(dy + r * dy_stride + c, n) * slope;
        float* to = dx + r * dx_stride + c;
        store(to, accumulate ? load(to, n) + g : g, n);
      });
  });
}

}  // namespace

const ActivationKernels activation_f32 = {fwd, bwd};

}  // namespace mudd::MUDD_ISA
