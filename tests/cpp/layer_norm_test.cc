// levels: layer_norm rows against the double reference, gradients by complex step, threads bit-equal.
#include "mudd/ops/layer_norm/layer_norm.h"
#include "compare.h"
#include "complex_step.h"
#include "mudd/base/parallel.h"
#include "mudd/ops/layer_norm/reference.h"
#include "node_runner.h"

using namespace mudd;
using namespace mudd::test;

namespace {

enum Of { kX, kGain, kBias };

// d(sum dy*y)/d(input `of`) by the complex step on the reference.
std::vector<double> gradient(const std::vector<float>& x, const std::vector<float>& gain,
                             const std::vector<float>& bias, const std::vector<float>& dy, int64_t rows, int64_t d,
                             Of of) {
  return complex_step({x, gain, bias}, of, dy, [&](const auto& in) {
    auto y = in[kX];
    reference::layer_norm(rows, d, in[kX].data(), in[kGain].data(), in[kBias].data(), 1e-5, y.data());
    return y;
  });
}

}  // namespace

TEST_CASE("layer_norm rows equal the reference on every edge of the lanes") {
  for_each_row(layer_norm_rows(), [](const auto& row) {
    for (int64_t rows : {0, 1, 3, 6})
      for (int64_t d : {2, 7, 8, 9, 15, 16, 17, 33, 63, 64, 65, 129}) {
        const auto x = numbers(1, rows * d), gain = numbers(2, d), bias = numbers(3, d), dy = numbers(4, rows * d);
        const auto xd = widen(x), gd = widen(gain), bd = widen(bias);
        std::vector<double> want(x.size());
        reference::layer_norm<double>(rows, d, xd.data(), gd.data(), bd.data(), 1e-5, want.data());
        std::vector<float> y(x.size()), stats(2 * rows), dx(x.size()), added(x.size(), 1.0f), dgain(d), dbias(d),
            over = dy;
        row.kernels->fwd(0, rows, d, x.data(), d, gain.data(), bias.data(), {}, y.data(), d, stats.data());
        CHECK(distance(y, want, y.size()) <= tolerance("layer_norm.y"));
        row.kernels->bwd(0, rows, d, x.data(), d, gain.data(), {}, stats.data(), dy.data(), d, dx.data(), d, false,
                         dgain.data(), dbias.data());
        // With two columns dx itself is a difference of equal numbers: measured against inv, its factors' size.
        const auto dx_want = gradient(x, gain, bias, dy, rows, d, kX);
        float inv = 0;
        for (int64_t r = 0; r < rows; ++r) inv = std::max(inv, stats[2 * r + 1]);
        for (size_t i = 0; i < dx.size(); ++i)
          CHECK(std::fabs(dx[i] - dx_want[i]) <= tolerance("layer_norm.dx") * inv);
        CHECK(distance(dgain, gradient(x, gain, bias, dy, rows, d, kGain), d) <= tolerance("layer_norm.dgain"));
        CHECK(distance(dbias, gradient(x, gain, bias, dy, rows, d, kBias), d) <= tolerance("layer_norm.dbias"));
        row.kernels->bwd(0, rows, d, x.data(), d, gain.data(), {}, stats.data(), dy.data(), d, added.data(), d,
                         true, nullptr, nullptr);
        row.kernels->bwd(0, rows, d, x.data(), d, gain.data(), {}, stats.data(), over.data(), d, over.data(), d,
                         false, dgain.data(), dbias.data());
        for (size_t i = 0; i < dx.size(); ++i) CHECK((added[i] == 1.0f + dx[i] && over[i] == dx[i]));
      }
  });
}

TEST_CASE("a row has the same bits alone and beside others, whatever its width") {
  for_each_row(layer_norm_rows(), [](const auto& row) {
    const int64_t rows = 7;
    for (int64_t d : {5, 64, 1100, 1500, 2300, 4200}) {
      const auto x = numbers(1, rows * d), gain = numbers(2, d), bias = numbers(3, d), dy = numbers(4, rows * d);
      std::vector<float> y(x.size()), stats(2 * rows), dx(x.size());
      auto y_alone = y, stats_alone = stats, dx_alone = dx;
      const auto compute = [&](int64_t begin, int64_t end, float* to, float* means, float* gradient) {
        row.kernels->fwd(begin, end, d, x.data(), d, gain.data(), bias.data(), {}, to, d, means);
        row.kernels->bwd(begin, end, d, x.data(), d, gain.data(), {}, means, dy.data(), d, gradient, d, false,
                         nullptr, nullptr);
      };
      compute(0, rows, y.data(), stats.data(), dx.data());
      for (int64_t r = 0; r < rows; ++r) compute(r, r + 1, y_alone.data(), stats_alone.data(), dx_alone.data());
      CHECK((y == y_alone && stats == stats_alone && dx == dx_alone));
    }
  });
}

TEST_CASE("a large mean does not spoil the variance") {
  for_each_row(layer_norm_rows(), [](const auto& row) {
    const int64_t d = 100;
    auto x = numbers(5, d);
    for (float& v : x) v += 4096.0f;
    const auto xd = widen(x);
    std::vector<double> want(d);
    reference::layer_norm<double>(1, d, xd.data(), nullptr, nullptr, 1e-5, want.data());
    std::vector<float> y(d), stats(2);
    row.kernels->fwd(0, 1, d, x.data(), d, nullptr, nullptr, {}, y.data(), d, stats.data());
    CHECK(distance(y, want, d) <= 1e-3);  // the mean itself is rounded to 2^-12 of the spread
  });
}

TEST_CASE("the node: optional inputs, strides, accumulation, the same bits for any thread count") {
  const int64_t samples = 5, t = 37, d = 41, rows = samples * t;
  const auto x = numbers(1, rows * d), gain = numbers(2, d), bias = numbers(3, d), dy = numbers(4, rows * d);
  std::vector<std::vector<float>> first;
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    NodeRunner runner("layer_norm", {}, {{{samples, t, d}, x}, {{d}, gain}, {{d}, bias}}, Shards::cut(samples, 4),
                      3);
    std::vector<std::vector<float>> got{runner.forward()};
    for (auto& g : runner.backward(dy)) got.push_back(g);
    for (auto& g : runner.backward(dy, {x, gain, bias})) got.push_back(g);
    if (first.empty()) first = got;
    CHECK(got == first);
  }
  set_num_threads(0);
  CHECK(distance(first[2], gradient(x, gain, bias, dy, rows, d, kGain), d) <= tolerance("layer_norm.dgain"));
  for (int64_t i = 0; i < d; ++i) CHECK(first[5][i] == gain[i] + first[2][i]);
  NodeRunner bare("layer_norm", {}, {{{samples, t, d}, x}, {{d}, {}}, {{d}, {}}}, Shards::cut(samples, 4));
  NodeRunner ones("layer_norm", {}, {{{samples, t, d}, x}, {{d}, std::vector<float>(d, 1.0f)}, {{d}, {}}},
                  Shards::cut(samples, 4));
  CHECK(bare.forward() == ones.forward());
  CHECK(bare.backward(dy)[0] == ones.backward(dy)[0]);
  CHECK_THROWS_WITH_AS(NodeRunner("layer_norm", {}, {{{2, 3}, numbers(1, 6)}, {{2}, gain}}, Shards{}),
                       "[layer_norm] gain: expected float32[3], got float32[2]", Error);
}
