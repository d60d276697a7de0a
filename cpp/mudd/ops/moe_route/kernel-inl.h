// Compiled once for each ISA level, with its Vec; see moe_route.h for the contract.
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

// row_sum over the experts of a token. If they fit one vector, one addition of the other lanes' zeros is
// enough.
template <class Body>
inline float sum_experts(int64_t experts, Body body) {
  if (experts <= Vec::kLanes) return (body(0, static_cast<int>(experts), Vec::zero()) + Vec::zero()).sum();
  return row_sum(experts, body).sum();
}

void softmax(int64_t rows, int64_t experts, float* logits, RouteRow* stats) {
  for (int64_t r = 0; r < rows; ++r) {
    float* z = logits + r * experts;
    const Vec max = Vec::set1(largest(experts, z));
    const float sum = sum_experts(experts, [&](int64_t e, int n, Vec s) {
      return s + first_lanes(exp_nonpositive(load(z + e, n) - max), n);
    });
    const Vec scale = Vec::set1(1.0f / sum);
    const float mean = sum_experts(experts, [&](int64_t e, int n, Vec s) {
      const Vec below = load(z + e, n) - max, p = exp_nonpositive(below) * scale;
      store(z + e, p, n);
      return s + first_lanes(p * below, n);
    });
    float m[Vec::kLanes];
    max.store(m);
    stats[r] = {m[0], sum, mean};
  }
}

void balance(int64_t experts, const float* p, const float* G, float z_slope, float* dz) {
  const float mean =
      sum_experts(experts, [&](int64_t e, int n, Vec s) { return fma(load(G + e, n), load(p + e, n), s); });
  const Vec shift = Vec::set1(z_slope - mean);
  over_row(experts, [&](int64_t e, int n) {
    store(dz + e, fma(load(p + e, n), load(G + e, n) + shift, load(dz + e, n)), n);
  });
}

}  // namespace

const MoeRouteKernels moe_route_f32 = {softmax, balance};

}  // namespace mudd::MUDD_ISA
