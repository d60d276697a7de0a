// Built once per level over Vec; see linear.h for the contract.
#include "mudd/base/simd/activations.h"
#include "mudd/base/simd/rows.h"
#include "mudd/ops/linear/linear.h"

namespace mudd::MUDD_ISA {
namespace {

void bwd(int64_t begin, int64_t end, int64_t width, Activation activation, const float* pre, const float* dy,
         int64_t dy_stride, float* dpre, float* dbias) {
  if (dbias) over_row(width, [&](int64_t d, int n) { store(dbias + d, Vec::zero(), n); });
  with_activation(activation, [&](auto tag) {
    constexpr Activation kKind = decltype(tag)::kind;
    for (int64_t r = begin; r < end; ++r)
      over_row(width, [&](int64_t d, int n) {
        Vec g = load(dy + r * dy_stride + d, n);
        if constexpr (kKind != Activation::none) {
          g = g * activate_derivative<kKind>(load(pre + r * width + d, n));
          store(dpre + r * width + d, g, n);
        }
        if (dbias) store(dbias + d, load(dbias + d, n) + g, n);
      });
  });
}

}  // namespace

const LinearKernels linear_f32 = {bwd};

}  // namespace mudd::MUDD_ISA
