// levels: weight gradients of gemm rows on every edge of their tiles, bit for bit the tree over shards that the
// contract promises.
#include "compare.h"
#include "gemm_chain.h"
#include "gemm_operands.h"
#include "mudd/kernels/gemm/gemm.h"

using namespace mudd;
using namespace mudd::test;

namespace {

void check_gradient(const GemmKernels& kernels, const std::vector<int64_t>& cuts, int64_t m, int64_t n,
                    int n_add) {
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(cuts.size());
  const int64_t rows = cuts.back(), ldx = m + 3, ldy = n + 1, ldo = n + 2;
  const Floats x = numbers(4, rows * m), dy = numbers(5, rows * n);
  const Floats wide_x = spread(x, rows, m, ldx), wide_dy = spread(dy, rows, n, ldy);
  std::vector<Floats> adds, wide_adds;
  std::vector<const float*> add;
  for (int i = 0; i < n_add; ++i) {
    adds.push_back(numbers(6 + i, m * n));
    wide_adds.push_back(spread(adds.back(), m, n, ldo));
  }
  for (const Floats& w : wide_adds) add.push_back(w.data());
  Floats out(static_cast<size_t>(m * ldo), 7.0f);
  const int shards = static_cast<int>(cuts.size()) - 1;
  Floats scratch(static_cast<size_t>(kernels.grad_scratch(m, n, shards)), std::numeric_limits<float>::quiet_NaN());
  GradBlock g = gradient_of(wide_x.data(), wide_dy.data(), cuts.data(), shards, m, n, out.data(), scratch.data());
  g.ldx = ldx;
  g.ldy = ldy;
  g.ldo = ldo;
  g.add = add.data();
  g.n_add = n_add;
  kernels.weight_gradient(g);
  const Floats want = gradient_chain(cuts, m, n, x, dy, adds);
  CHECK(same_bits(gather(out, m, n, ldo), want));
  if (n_add > 0) {  // the last add may be the place of the result
    g.out = wide_adds.back().data();
    kernels.weight_gradient(g);
    CHECK(same_bits(gather(wide_adds.back(), m, n, ldo), want));
  }
  for (int64_t i = 0; i < m; ++i) CHECK(out[i * ldo + n] == 7.0f);
}

}  // namespace

TEST_CASE("weight gradients are the promised tree on every edge") {
  for_each_row(gemm_rows(), [](const auto& row) {
    const GemmKernels& kernels = *row.kernels;
    for (int64_t m : edges(kernels.mr))
      for (int64_t n : edges(kernels.nr)) {
        check_gradient(kernels, {0, 5}, m, n, 0);
        check_gradient(kernels, {0, 3, 3, 7, 8}, m, n, 1);
      }
    check_gradient(kernels, {0, 0}, 3, 4, 1);
    check_gradient(kernels, {0, 300, 557}, 7, 33, 2);
    check_gradient(kernels, {0, 2, 3, 5, 6, 8, 9}, 49, 129, 3);
    check_gradient(kernels, {0, 2, 3, 5, 6, 8, 9, 11, 12}, 50, 20, 3);
  });
}

TEST_CASE("micro-batches of whole shards give the same bits as one run") {
  for_each_row(gemm_rows(), [](const auto& row) {
    const GemmKernels& kernels = *row.kernels;
    const int64_t m = kernels.mr + 1, n = kernels.nr + 1, cuts[] = {0, 9, 17, 24, 31};
    const Floats x = numbers(1, 31 * m), dy = numbers(2, 31 * n);
    Floats scratch(static_cast<size_t>(kernels.grad_scratch(m, n, 4)));
    Floats whole(static_cast<size_t>(m * n)), half = whole, both = whole;
    GradBlock g = gradient_of(x.data(), dy.data(), cuts, 4, m, n, whole.data(), scratch.data());
    kernels.weight_gradient(g);
    g.shards = 2;
    g.out = half.data();
    kernels.weight_gradient(g);
    const int64_t second[] = {0, 7, 14};
    const float* add[] = {half.data()};
    g.x += 17 * m;
    g.dy += 17 * n;
    g.cuts = second;
    g.out = both.data();
    g.add = add;
    g.n_add = 1;
    kernels.weight_gradient(g);
    CHECK(same_bits(whole, both));
  });
}
