// Built once per level over Vec; see reduce.h for the contract.
#include "mudd/base/simd/rows.h"
#include "mudd/kernels/reduce/reduce.h"

namespace mudd::MUDD_ISA {
namespace {

float squares(int64_t n, const float* const* planes, int n_planes) {
  const Vec total = row_sum(n, [&](int64_t i, int lanes, Vec sum) {
    Vec g = load(planes[0] + i, lanes);
    for (int p = 1; p < n_planes; ++p) g = g + load(planes[p] + i, lanes);
    return fma(g, g, sum);
  });
  return total.sum();
}

bool finite(int64_t n, const float* x) {
  const Vec infinity = Vec::set1(__builtin_inff()), one = Vec::set1(1.0f);
  const Vec bad = row_sum(n, [&](int64_t i, int lanes, Vec sum) {
    return max(sum, select(less(abs(load(x + i, lanes)), infinity), Vec::zero(), one));
  });
  return bad.sum() == 0.0f;
}

}  // namespace

const ReduceKernels reduce_f32 = {squares, finite};

}  // namespace mudd::MUDD_ISA
