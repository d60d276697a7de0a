// levels: squared norms and finiteness against the double reference, threads bit-equal.
#include "mudd/kernels/reduce/reduce.h"
#include "mudd/base/shard_tree.h"

#include "compare.h"
#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/kernels/reduce/reference.h"

using namespace mudd;
using namespace mudd::test;

TEST_CASE("reduce rows on every edge of the lanes") {
  for_each_row(reduce_rows(), [](const auto& row) {
    for (int64_t n : {0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 4095, 4096})
      for (int planes : {1, 2, 3, 4}) {
        std::vector<std::vector<float>> all;
        const float* pointers[4] = {};
        for (int p = 0; p < planes; ++p) all.push_back(numbers(static_cast<uint64_t>(p), n));
        for (int p = 0; p < planes; ++p) pointers[p] = all[static_cast<size_t>(p)].data();
        const double want = reference::squares(n, pointers, planes);
        CHECK(std::fabs(row.kernels->squares(n, pointers, planes) - want) <= tolerance("reduce.squares") * want);
        std::vector<float>& x = all[0];
        CHECK(row.kernels->finite(n, x.data()));
        for (int64_t at : {int64_t{0}, n / 2, n - 1})
          for (float bad : {NAN, INFINITY, -INFINITY}) {
            if (n == 0) continue;
            const float before = std::exchange(x[static_cast<size_t>(at)], bad);
            CHECK(!row.kernels->finite(n, x.data()));
            x[static_cast<size_t>(at)] = before;
          }
      }
  });
}

TEST_CASE("squared_norm: many gradients, the same bits for any thread count, nothing is lost") {
  std::vector<std::vector<float>> memory;
  std::vector<GradientPlanes> gradients;
  double want = 0;
  for (int64_t n : {1, 4096, 4097, 0, 123456, 3, 300000}) {
    memory.push_back(numbers(1, n));
    memory.push_back(numbers(2, n));
    GradientPlanes g;
    g.n = n;
    g.n_planes = n % 2 == 0 ? 2 : 1;
    g.planes[0] = memory[memory.size() - 2].data();
    g.planes[1] = memory[memory.size() - 1].data();
    gradients.push_back(g);
    want += reference::squares(n, g.planes, g.n_planes);
  }
  int64_t count = 0;
  for (GradientPlanes& g : gradients) {
    g.first_block = count;
    count += norm_blocks(g.n);
  }
  std::vector<double> blocks(static_cast<size_t>(count));
  CHECK(blocks.size() == 1 + 1 + 2 + 0 + 31 + 1 + 74);
  double first = 0;
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    block_squares(gradients, blocks);
    const double got = squared_norm(blocks);
    if (threads == 1) first = got;
    CHECK(got == first);
  }
  set_num_threads(0);
  CHECK(std::fabs(first - want) <= tolerance("reduce.all") * want);
  memory[8][77] = NAN;
  block_squares(gradients, blocks);
  CHECK(!std::isfinite(squared_norm(blocks)));
  CHECK_THROWS_AS(block_squares(gradients, std::span(blocks).first(5)), Error);
  gradients[2].n_planes = 5;
  CHECK_THROWS_AS(block_squares(gradients, blocks), Error);
}

TEST_CASE("all_finite looks at every row and not between them") {
  std::vector<float> x(70 * 12, 1.0f);
  for (int64_t r = 0; r < 70; ++r) x[static_cast<size_t>(r * 12 + 11)] = NAN;
  const Tensor t{x.data(), 70, 11, 12, DType::f32};
  CHECK(all_finite(t));
  x[69 * 12 + 10] = INFINITY;
  CHECK(!all_finite(t));
}

TEST_CASE("shard_sum is the balanced tree") {
  const double v[] = {1, 1e-17, 1e-17, 1e-17, 3, 5, 7};
  CHECK(shard_sum(v, 1) == 1);
  CHECK(shard_sum(v, 4) == (1 + 1e-17) + (1e-17 + 1e-17));
  CHECK(shard_sum(v + 1, 7 - 1) == ((1e-17 + 1e-17) + (1e-17 + 3)) + (5 + 7));
  CHECK(shard_sum(v, 0) == 0);
}

TEST_CASE("sum_planes: the tree over any number of planes, in place of any of them") {
  for (int count : {1, 2, 3, 4, 5, 7, 8, 13, 16, 64, 1024})
    for (int64_t n : {0, 1, 17, count < 100 ? 40000 : 3000}) {
      std::vector<std::vector<float>> memory;
      std::vector<const float*> planes;
      for (int p = 0; p < count; ++p) memory.push_back(numbers(p + 1, n));
      for (const auto& plane : memory) planes.push_back(plane.data());
      std::vector<std::vector<float>> want = memory;
      shard_tree::pairs(count, [&](int left, int right) {
        for (int64_t i = 0; i < n; ++i) want[left][i] += want[right][i];
      });
      const int into = count / 2;
      for (int threads : {1, 3}) {
        set_num_threads(threads);
        const std::vector<float> before = memory[into];
        sum_planes(planes, memory[into].data(), n);
        CHECK(memory[into] == want[0]);
        memory[into] = before;
        sum_planes_alone(planes, memory[into].data(), n);
        CHECK(memory[into] == want[0]);
        memory[into] = before;
      }
    }
  set_num_threads(0);
  std::vector<float> out(1);
  CHECK_THROWS_AS(sum_planes({}, out.data(), 1), Error);
}
