// Compiled once for each ISA level, with its Vec; see reduce.h for the contract.
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

template <int kCount>
void sum_of(int64_t n, const float* const* planes, int64_t begin, float* out) {
  over_row(n, [&](int64_t i, int lanes) { store(out + i, tree<kCount>(planes, begin + i, lanes), lanes); });
}

// Elements that stay in L1 while the sums of some planes wait for the others.
constexpr int64_t kBlock = 1024;

// Write the sum of elements [begin, begin + n) of all planes to out[0, n). out may be one of them only if count
// is a power of two up to 8.
void sum_block(int64_t n, const float* const* planes, int count, int64_t begin, float* out) {
  if (count == 1) return sum_of<1>(n, planes, begin, out);
  if (count == 2) return sum_of<2>(n, planes, begin, out);
  if (count == 4) return sum_of<4>(n, planes, begin, out);
  if (count == 8) return sum_of<8>(n, planes, begin, out);
  int left = 1;
  while (2 * left < count) left *= 2;
  alignas(64) float right[kBlock];
  sum_block(n, planes, left, begin, out);
  sum_block(n, planes + left, count - left, begin, right);
  over_row(n, [&](int64_t i, int lanes) { store(out + i, load(out + i, lanes) + load(right + i, lanes), lanes); });
}

void sum(int64_t n, const float* const* planes, int count, float* out) {
  if (count <= 8 && (count & (count - 1)) == 0) return sum_block(n, planes, count, 0, out);
  alignas(64) float total[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t some = n - begin < kBlock ? n - begin : kBlock;
    sum_block(some, planes, count, begin, total);
    over_row(some, [&](int64_t i, int lanes) { store(out + begin + i, load(total + i, lanes), lanes); });
  }
}

}  // namespace

const ReduceKernels reduce_f32 = {squares, finite, sum};

}  // namespace mudd::MUDD_ISA
