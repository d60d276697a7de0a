// levels: glu and add rows against the double reference, slopes by complex step, threads bit-equal.
#include "mudd/ops/glu/glu.h"
#include "compare.h"
#include "mudd/base/parallel.h"
#include "mudd/ops/add/add.h"
#include "mudd/ops/add/reference.h"
#include "mudd/ops/glu/reference.h"
#include "node_runner.h"

using namespace mudd;
using namespace mudd::test;

namespace {

constexpr Activation kAll[] = {Activation::silu, Activation::gelu_tanh, Activation::gelu_erf, Activation::relu,
                               Activation::squared_relu};

}  // namespace

TEST_CASE("glu rows equal the reference on every edge of the lanes") {
  for_each_row(glu_rows(), [](const auto& row) {
    for (Activation a : kAll)
      for (int64_t rows : {0, 1, 3})
        for (int64_t cols : {1, 7, 8, 9, 15, 16, 17, 33}) {
          const int64_t n = rows * cols;
          auto gate = numbers(1, n);
          for (float& g : gate) g *= 5;
          const auto up = numbers(2, n), dy = numbers(3, n);
          const auto gd = widen(gate), ud = widen(up);
          std::vector<double> want(gate.size());
          reference::glu(n, a, gd.data(), ud.data(), want.data());
          std::vector<float> y(gate.size()), dgate(gate.size()), dup(gate.size(), 1.0f), over = dy, place = gate;
          row.kernels->fwd(0, rows, cols, a, gate.data(), cols, up.data(), cols, y.data(), cols);
          row.kernels->fwd(0, rows, cols, a, place.data(), cols, up.data(), cols, place.data(), cols);
          row.kernels->bwd(0, rows, cols, a, gate.data(), cols, up.data(), cols, dy.data(), cols,
                           {dgate.data(), cols, false}, {dup.data(), cols, true});
          row.kernels->bwd(0, rows, cols, a, gate.data(), cols, up.data(), cols, over.data(), cols,
                           {over.data(), cols, false}, {nullptr, 0, false});
          for (int64_t i = 0; i < n; ++i) {
            const double size = std::max(1.0, std::fabs(gd[i]));
            CHECK(std::fabs(y[i] - want[i]) <= tolerance("glu.y") * size * size);
            CHECK(std::fabs(dgate[i] - dy[i] * ud[i] * reference::activate_slope(a, gd[i])) <=
                  tolerance("glu.gradients") * size);
            CHECK(std::fabs(dup[i] - 1 - dy[i] * reference::activate(a, gd[i])) <=
                  tolerance("glu.gradients") * size * size);
            CHECK((place[i] == y[i] && over[i] == dgate[i]));
          }
        }
  });
}

TEST_CASE("the glu node: strides, accumulation, unwanted inputs, the same bits for any thread count") {
  const int64_t rows = 301, cols = 131;
  const auto gate = numbers(1, rows * cols), up = numbers(2, rows * cols), dy = numbers(3, rows * cols);
  Attributes options;
  options.values["activation"] = std::string("gelu_tanh");
  std::vector<std::vector<float>> first;
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    NodeRunner runner("glu", options, {{{rows, cols}, gate}, {{rows, cols}, up}}, Shards{}, 5);
    std::vector<std::vector<float>> got{runner.forward()};
    for (auto& g : runner.backward(dy)) got.push_back(g);
    for (auto& g : runner.backward(dy, {gate, {}})) got.push_back(g);
    if (first.empty()) first = got;
    CHECK(got == first);
  }
  set_num_threads(0);
  for (size_t i = 0; i < gate.size(); ++i) CHECK(first[3][i] == gate[i] + first[1][i]);
  CHECK(first[4] == first[2]);
  NodeRunner half("glu", options, {{{rows, cols}, gate, false}, {{rows, cols}, up}}, Shards{});
  half.forward();
  CHECK(half.backward(dy)[1] == first[2]);
  CHECK_THROWS_WITH_AS(NodeRunner("glu", {}, {{{1, 2}, {1, 2}}, {{1, 3}, {1, 2, 3}}}, Shards{}),
                       "[glu] up: expected float32[1, 2], got float32[1, 3]", Error);
}

TEST_CASE("add: values, the gradient of b set or added, a passed on") {
  for_each_row(add_rows(), [](const auto& row) {
    for (int64_t rows : {0, 1, 3})
      for (int64_t cols : {1, 7, 8, 9, 15, 16, 17, 33}) {
        const auto a = numbers(1, rows * cols), b = numbers(2, rows * cols);
        std::vector<float> y(a.size()), want(a.size()), place = a;
        row.kernels->add(0, rows, cols, a.data(), cols, b.data(), cols, y.data(), cols);
        row.kernels->add(0, rows, cols, place.data(), cols, b.data(), cols, place.data(), cols);
        reference::add(rows * cols, a.data(), b.data(), want.data());
        CHECK(y == want);
        CHECK(place == want);
      }
  });
  const auto a = numbers(1, 60), b = numbers(2, 60), dy = numbers(3, 60);
  NodeRunner runner("add", {}, {{{2, 6, 5}, a, false}, {{2, 6, 5}, b}}, Shards{}, 2);
  CHECK(runner.node().passes_gradient() == 0);
  const auto y = runner.forward();
  const auto set = runner.backward(dy)[1], added = runner.backward(dy, {{}, b})[1];
  CHECK(set == dy);
  for (size_t i = 0; i < y.size(); ++i) CHECK((y[i] == a[i] + b[i] && added[i] == b[i] + dy[i]));
}
