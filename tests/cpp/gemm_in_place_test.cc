// bf16 rows that are packed pairs already are read in place, with the bits of copied rows.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "gemm_operands.h"
#include "mudd/kernels/gemm/gemm.h"

using namespace mudd;
using namespace mudd::test;

namespace {

bf16 half_of(int64_t i) {
  const float x = 0.01f * static_cast<float>(i * 7919 % 401 - 200);
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return {static_cast<uint16_t>(bits >> 16)};
}

// Return C of m rows of k elements, `stride` apart, from element `offset`; NaN fills the gaps.
std::vector<float> product(const GemmKernels& kernels, int64_t m, int64_t n, int64_t k, int64_t stride,
                           int64_t offset) {
  std::vector<bf16> a(static_cast<size_t>(offset + m * stride + 1), bf16{0x7fc0});
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < k; ++j) a[static_cast<size_t>(offset + i * stride + j)] = half_of(i * k + j);
  std::vector<float> w(static_cast<size_t>(k * n)), c(static_cast<size_t>(m * n));
  for (size_t i = 0; i < w.size(); ++i) w[i] = 0.02f * static_cast<float>(i * 31 % 57) - 0.5f;
  const Packed packed(kernels, w, k, n, false);
  GemmBlock g = product_of(a.data() + offset, packed.bytes.data(), c.data(), m, n, k, DType::bf16);
  g.lda = stride;
  kernels.multiply(g);
  return c;
}

}  // namespace

TEST_CASE("rows of bf16 in place give the bits of copied rows") {
  for (const auto& row : gemm_rows(DType::bf16)) {
    if (!row.runs_here()) continue;
    std::printf("  %s\n", row.level);
    const GemmKernels& kernels = *row.kernels;
    // 1,056 numbers are two blocks of rows that are copied; 300 columns, more than the sums of one that wait.
    for (int64_t m : {2, kernels.mr, kernels.mr + 1, kernels.mr + 16, 3 * kernels.mr - 1})
      for (int64_t k : {2, 32, 514, 1026, 1056}) {
        const int64_t n = k == 1056 ? 300 : 2 * kernels.nr + 3;
        const std::vector<float> copied = product(kernels, m, n, k, k + 3, 0);  // an odd stride
        for (float x : copied) REQUIRE(std::isfinite(x));
        CHECK(product(kernels, m, n, k, k + 2, 0) == copied);
        CHECK(product(kernels, m, n, k, k, 0) == copied);
        CHECK(product(kernels, m, n, k, k + 4, 1) == copied);  // starts inside a pair
      }
  }
}
