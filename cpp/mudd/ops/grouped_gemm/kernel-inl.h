// Compiled once for each ISA level, with its Vec; see grouped_gemm.h for the contract.
#include "mudd/base/simd/activations.h"
#include "mudd/base/simd/rows.h"
#include "mudd/ops/grouped_gemm/grouped_gemm.h"

namespace mudd::MUDD_ISA {
namespace {

void bwd(int64_t rows, int64_t width, Activation activation, const SlotRows& slots) {
  with_activation(activation, [&](auto tag) {
    for (int64_t r = 0; r < rows; ++r) {
      float *gate = slots.gate + r * width, *up = slots.up + r * width, *inner = slots.inner + r * width;
      const Vec scale = Vec::set1(slots.scale[r]);
      slots.dscale[r] = row_sum<kFewChains>(width, [&](int64_t f, int n, Vec sum) {
                          const ValueAndSlope a = activate_with_slope<decltype(tag)::kind>(load(gate + f, n));
                          const Vec u = load(up + f, n), d = load(inner + f, n), h = a.value * u, g = scale * d;
                          store(gate + f, g * u * a.slope, n);
                          store(up + f, g * a.value, n);
                          store(inner + f, scale * h, n);
                          return fma(d, h, sum);
                        }).sum();
    }
  });
}

void combine(int64_t width, const float* base, const float* const* rows, int64_t count, float* out) {
  over_row(width, [&](int64_t d, int n) {
    Vec sum = count > 0 ? load(rows[0] + d, n) : Vec::zero();
    for (int64_t i = 1; i < count; ++i) sum = sum + load(rows[i] + d, n);
    store(out + d, base ? load(base + d, n) + sum : sum, n);
  });
}

}  // namespace

const GroupedGemmKernels grouped_gemm_f32 = {bwd, combine};

}  // namespace mudd::MUDD_ISA
