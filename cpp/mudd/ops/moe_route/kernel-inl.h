// Built once per level over Vec; see moe_route.h for the contract.
#include "mudd/base/simd/math.h"
#include "mudd/base/simd/rows.h"
#include "mudd/ops/moe_route/moe_route.h"

namespace mudd::MUDD_ISA {
namespace {

float largest(int64_t n, const float* x) {
  float max = x[0];
  for (int64_t i = 1; i < n; ++i) max = x[i] > max ? x[i] : max;
  return max;
}

void softmax(int64_t rows, int64_t experts, float* logits, RouteRow* stats) {
  for (int64_t r = 0; r < rows; ++r) {
    float* z = logits + r * experts;
    const Vec max = Vec::set1(largest(experts, z));
    const float sum = row_sum(experts, [&](int64_t e, int n, Vec s) {
                        return s + first_lanes(exp_nonpositive(load(z + e, n) - max), n);
                      }).sum();
    const Vec scale = Vec::set1(1.0f / sum);
    const float mean = row_sum(experts, [&](int64_t e, int n, Vec s) {
                         const Vec below = load(z + e, n) - max, p = exp_nonpositive(below) * scale;
                         store(z + e, p, n);
                         return s + first_lanes(p * below, n);
                       }).sum();
    float m[Vec::kLanes];
    max.store(m);
    stats[r] = {m[0], sum, mean};
  }
}

void balance(int64_t experts, const float* p, const float* G, float z_slope, float* dz) {
  const float mean =
      row_sum(experts, [&](int64_t e, int n, Vec s) { return fma(load(G + e, n), load(p + e, n), s); }).sum();
  const Vec shift = Vec::set1(z_slope - mean);
  over_row(experts, [&](int64_t e, int n) {
    store(dz + e, fma(load(p + e, n), load(G + e, n) + shift, load(dz + e, n)), n);
  });
}

}  // namespace

const MoeRouteKernels moe_route_f32 = {softmax, balance};

}  // namespace mudd::MUDD_ISA
