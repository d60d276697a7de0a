// levels: dropout rows against the reference, the fraction and the scale of kept elements, the node's two
// passes.
#include <cmath>

#include "compare.h"
#include "mudd/base/parallel.h"
#include "mudd/ops/dropout/dropout.h"
#include "mudd/ops/dropout/reference.h"
#include "node_runner.h"

using namespace mudd;
using namespace mudd::test;
using Floats = std::vector<float>;

TEST_CASE("dropout rows: the reference's numbers at every width, with and without a residual, in place") {
  for_each_row(dropout_rows(), [](const auto& row) {
    for (int64_t cols : {1, 3, 7, 8, 9, 16, 17, 63, 64, 65, 131})
      for (double rate : {0.0, 0.1, 0.5, 0.999}) {
        const int64_t samples = 3, time = 5, rows = samples * time, stride = cols + 3;
        const Dropout draws = rate > 0 ? Dropout(rate, 7, "place", 11, 2) : Dropout();
        const Floats x = numbers(1, rows * stride), base = numbers(2, rows * stride);
        std::vector<double> tight, added;
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < cols; ++c)
            tight.push_back(x[r * stride + c]), added.push_back(base[r * stride + c]);
        std::vector<double> want(tight.size()), with_base(tight.size());
        reference::dropout<double>(draws, samples, time, cols, tight.data(), nullptr, want.data());
        reference::dropout<double>(draws, samples, time, cols, tight.data(), added.data(), with_base.data());
        Floats y(x.size(), 7.0f), sum = base, over = x;
        row.kernels->apply(draws, {2, rows, cols, time, x.data(), stride, nullptr, 0, y.data(), stride});
        row.kernels->apply(draws, {0, 2, cols, time, x.data(), stride, nullptr, 0, y.data(), stride});
        row.kernels->apply(draws, {0, rows, cols, time, over.data(), stride, nullptr, 0, over.data(), stride});
        row.kernels->apply(draws, {0, rows, cols, time, x.data(), stride, sum.data(), stride, sum.data(), stride});
        for (int64_t i = 0; i < rows * stride; ++i) {
          if (i % stride >= cols) {  // between rows nothing is touched
            CHECK((y[i] == 7.0f && sum[i] == base[i] && over[i] == x[i]));
            continue;
          }
          const int64_t at = i / stride * cols + i % stride;
          CHECK(y[i] == static_cast<float>(want[at]));  // one rounding
          CHECK((over[i] == y[i] && sum[i] == base[i] + y[i]));
        }
      }
  });
}

TEST_CASE("the share that is kept, mean and variance; draws differ by seed, place, step, sample and position") {
  const int64_t n = 1 << 18, time = 1 << 10, width = n / time;
  for (double rate : {0.1, 0.5, 0.9}) {
    const auto draw = [&](uint64_t seed, const char* place, int64_t step, int64_t sample) {
      Floats ones(static_cast<size_t>(n), 1.0f), y = ones;
      dropout_rows().back().kernels->apply(
          Dropout(rate, seed, place, step, sample),
          {0, time, width, time, ones.data(), width, nullptr, 0, y.data(), width});
      return y;
    };
    const Floats y = draw(1, "a", 0, 0);
    double sum = 0, squares = 0;
    for (float v : y) sum += v, squares += double(v) * v;
    const double mean = sum / n, variance = squares / n - mean * mean, wanted = rate / (1 - rate);
    CHECK(std::fabs(mean - 1) < 5 * std::sqrt(wanted / n));
    CHECK(std::fabs(variance / wanted - 1) < 0.02);
    for (const Floats& other : {draw(2, "a", 0, 0), draw(1, "b", 0, 0), draw(1, "a", 1, 0), draw(1, "a", 0, 1),
                                draw(uint64_t{1} << 33 | 1, "a", 0, 0)}) {
      double both = 0;
      for (size_t i = 0; i < y.size(); ++i) both += (y[i] - 1) * (other[i] - 1);
      CHECK(std::fabs(both / n / wanted) < 5 / std::sqrt(n));
    }
    double rows = 0, columns = 0;  // neighbours
    for (int64_t i = 0; i + width < n; ++i)
      rows += (y[i] - 1) * (y[i + width] - 1), columns += (y[i] - 1) * (y[i + 1] - 1);
    CHECK(std::fabs(rows / n / wanted) < 5 / std::sqrt(n));
    CHECK(std::fabs(columns / n / wanted) < 5 / std::sqrt(n));
  }
}

TEST_CASE("the dropout node: backward has forward's draws, accumulation, threads; off without gradients") {
  const int64_t b = 3, t = 97, d = 37;
  Attributes options;
  options.values["rate"] = 0.3;
  const Floats x = numbers(1, b * t * d), residual = numbers(2, b * t * d), dy = numbers(3, b * t * d);
  std::vector<Floats> first;
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    NodeRunner runner("dropout", options, {{{b, t, d}, x}}, Shards{}, 5);
    std::vector<Floats> got{runner.forward()};
    for (auto& g : runner.backward(dy)) got.push_back(g);
    for (auto& g : runner.backward(dy, {x})) got.push_back(g);
    NodeRunner added("dropout", options, {{{b, t, d}, x}, {{b, t, d}, residual}}, Shards{}, 5);
    got.push_back(added.forward());
    if (first.empty()) first = got;
    CHECK(got == first);
  }
  set_num_threads(0);
  int64_t dropped = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const bool gone = first[0][i] == 0.0f;
    dropped += gone;
    CHECK(first[1][i] == (gone ? 0.0f : dy[i] * static_cast<float>(1 / 0.7)));
    CHECK(first[2][i] == x[i] + first[1][i]);
    CHECK(first[3][i] == residual[i] + first[0][i]);
  }
  CHECK(std::fabs(static_cast<double>(dropped) / static_cast<double>(x.size()) - 0.3) < 0.03);
  NodeRunner off("dropout", options, {{{b, t, d}, x, false}}, Shards{});
  CHECK(off.forward() == x);
  options.values["rate"] = 1.0;
  CHECK_THROWS_WITH_AS(NodeRunner("dropout", options, {{{b, t, d}, x}}, Shards{}),
                       "[dropout] rate: expected a number in [0, 1), got 1", Error);
}
