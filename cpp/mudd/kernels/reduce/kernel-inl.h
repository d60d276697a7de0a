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

// The tree of base/shard_tree.h over kCount planes.
template <int kCount>
Vec tree(const float* const* planes, int64_t i, int lanes) {
  if constexpr (kCount == 1) return load(planes[0] + i, lanes);
  else return tree<kCount / 2>(planes, i, lanes) + tree<kCount / 2>(planes + kCount / 2, i, lanes);
}

Vec tree_of(const float* const* planes, int count, int64_t i, int lanes) {
  if (count == 1) return load(planes[0] + i, lanes);
  int left = 1;
  while (2 * left < count) left *= 2;
  return tree_of(planes, left, i, lanes) + tree_of(planes + left, count - left, i, lanes);
}

void sum(int64_t n, const float* const* planes, int count, float* out) {
  const auto write = [&](auto value) {
    over_row(n, [&](int64_t i, int lanes) { store(out + i, value(i, lanes), lanes); });
  };
  if (count == 2) write([&](int64_t i, int lanes) { return tree<2>(planes, i, lanes); });
  else if (count == 4) write([&](int64_t i, int lanes) { return tree<4>(planes, i, lanes); });
  else if (count == 8) write([&](int64_t i, int lanes) { return tree<8>(planes, i, lanes); });
  else write([&](int64_t i, int lanes) { return tree_of(planes, count, i, lanes); });
}

}  // namespace

const ReduceKernels reduce_f32 = {squares, finite, sum};

}  // namespace mudd::MUDD_ISA
