// Compiled once for each ISA level, with its Vec; see linear.h for the contract.
#include "mudd/base/simd/activations.h"
#include "mudd/base/simd/rows.h"
#include "mudd/ops/linear/linear.h"

namespace mudd::MUDD_ISA {
namespace {

void bwd(int64_t begin, int64_t end, int64_t width, Activation activation, const float* pre, bool pre_is_slope,
         const float* dy, int64_t dy_stride, float* dpre, float* dbias) {
  if (dbias) over_row(width, [&](int64_t d, int n) { store(dbias + d, Vec::zero(), n); });
  const auto over_rows = [&](auto make_dpre) {
    for (int64_t r = begin; r < end; ++r)
      over_row(width, [&](int64_t d, int n) {
        const Vec g = make_dpre(load(dy + r * dy_stride + d, n), r * width + d, n);
        if (dbias) store(dbias + d, load(dbias + d, n) + g, n);
      });
  };
  const auto times = [&](Vec dy_now, Vec slope, int64_t at, int n) {
    const Vec g = dy_now * slope;
    store(dpre + at, g, n);
    return g;
  };
  if (pre_is_slope) return over_rows([&](Vec g, int64_t at, int n) { return times(g, load(pre + at, n), at, n); });
  with_activation(activation, [&](auto tag) {
    constexpr Activation kKind = decltype(tag)::kind;
    over_rows([&](Vec g, int64_t at, int n) {
      if constexpr (kKind == Activation::none) return g;
      else return times(g, activate_derivative<kKind>(load(pre + at, n)), at, n);
    });
  });
}

void remake(int64_t count, Activation activation, const float* pre, float* y, float* slope) {
  with_activation(activation, [&](auto tag) {
    over_row(count, [&](int64_t i, int n) {
      const ValueAndSlope a = activate_with_slope<decltype(tag)::kind>(load(pre + i, n));
      store(y + i, a.value, n);
      store(slope + i, a.slope, n);
    });
  });
}

}  // namespace

const LinearKernels linear_f32 = {bwd, remake};

}  // namespace mudd::MUDD_ISA
