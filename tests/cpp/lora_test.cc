// levels, units: lora against the double reference, gradients by complex step, dropout, threads bit-equal.
#include "mudd/ops/lora/lora.h"
#include "complex_step.h"
#include "mudd/base/parallel.h"
#include "mudd/ops/lora/reference.h"
#include "node_runner.h"

using namespace mudd;
using namespace mudd::test;
using Floats = std::vector<float>;

namespace {

struct Case {
  int64_t samples = 4, t = 7, k = 13, n = 19, rank = 3;
  bool bias = true, residual = true, frozen = true;
  double rate = 0;
  int64_t rows() const { return samples * t; }
};

constexpr double kScale = 1.75;

// x, w, a, b, bias, residual; absent ones are empty.
std::vector<Floats> inputs(const Case& c) {
  return {numbers(1, c.rows() * c.k),
          numbers(2, c.k * c.n),
          numbers(3, c.k * c.rank),
          numbers(4, c.rank * c.n),
          c.bias ? numbers(5, c.n) : Floats{},
          c.residual ? numbers(6, c.rows() * c.n) : Floats{}};
}

NodeRunner runner(const Case& c, int shards = 4, int64_t padding = 3, NodeRunner::Types types = {},
                  bool wants_x = true) {
  const auto in = inputs(c);
  Attributes a;
  a.values["scale"] = kScale;
  a.values["rate"] = c.rate;
  return {"lora",
          a,
          {{{c.samples, c.t, c.k}, in[0], wants_x, !types.wide_outputs},
           {{c.k, c.n}, in[1], !c.frozen},
           {{c.k, c.rank}, in[2]},
           {{c.rank, c.n}, in[3]},
           {{c.n}, in[4], !c.frozen},
           {{c.samples, c.t, c.n}, in[5], false}},
          Shards::cut(c.samples, shards),
          padding,
          types};
}

template <class N>
std::vector<N> reference_of(const Case& c, const std::vector<std::vector<N>>& in) {
  std::vector<N> y(static_cast<size_t>(c.rows() * c.n));
  reference::lora<N>(c.rows(), c.k, c.n, c.rank, kScale, in[0].data(), in[1].data(), in[2].data(), in[3].data(),
                     c.bias ? in[4].data() : nullptr, c.residual ? in[5].data() : nullptr, y.data());
  return y;
}

void check_case(const Case& c) {
  CAPTURE(c.k);
  CAPTURE(c.rank);
  std::vector<std::vector<double>> wide;
  for (const Floats& v : inputs(c)) wide.push_back(widen(v));
  const Floats dy = numbers(7, c.rows() * c.n);
  NodeRunner run = runner(c);
  const Floats y = run.forward();
  CHECK(distance(y, reference_of(c, wide), y.size()) <= tolerance("lora.y"));
  const auto got = run.backward(dy);
  for (size_t i = 0; i < (c.bias ? 5 : 4); ++i) {
    CAPTURE(i);
    if (got[i].empty()) continue;
    const auto want = complex_step(inputs(c), i, dy, [&](const auto& in) { return reference_of(c, in); });
    CHECK(distance(got[i], want, got[i].size()) <= tolerance("lora.gradients"));
  }
  // Accumulating adds the very same numbers to what is there: the sums of weights last, dx before the frozen
  // matrix.
  const auto before = inputs(c), added = run.backward(dy, before);
  for (size_t i = 1; i < 4; ++i)
    for (size_t j = 0; j < got[i].size(); ++j) CHECK(added[i][j] == before[i][j] + got[i][j]);
  for (size_t j = 0; j < got[0].size(); ++j)
    CHECK(std::fabs(added[0][j] - before[0][j] - got[0][j]) <= 1e-5f * (1 + std::fabs(got[0][j])));
}

void check_bf16(const Case& c) {
  CAPTURE(c.n);
  std::vector<std::vector<double>> wide;
  for (const Floats& v : inputs(c)) wide.push_back(widen(v));
  const Floats dy = numbers(7, c.rows() * c.n);
  NodeRunner run = runner(c, 4, 3, {DType::bf16, false});
  const Floats y = run.forward();
  CHECK(distance(y, reference_of(c, wide), y.size()) <= tolerance("lora.bf16_y"));
  const auto got = run.backward(dy);
  for (size_t i : {0, 2, 3}) {
    CAPTURE(i);
    const auto want = complex_step(inputs(c), i, dy, [&](const auto& in) { return reference_of(c, in); });
    CHECK(distance(got[i], want, got[i].size()) <= tolerance("lora.bf16_gradients"));
  }
}

}  // namespace

TEST_CASE("lora equals the reference, frozen or not, with and without bias and residual") {
  for (int options = 0; options < 8; ++options) {
    CAPTURE(options);
    check_case({.bias = (options & 1) != 0, .residual = (options & 2) != 0, .frozen = (options & 4) != 0});
  }
  check_case({.samples = 1, .t = 1, .k = 1, .n = 1, .rank = 1});
  check_case({.samples = 3, .t = 11, .k = 5, .n = 40, .rank = 17});  // a rank above the width
  check_case({.samples = 2, .t = 21, .k = 34, .n = 70, .rank = 16});
  check_case({.samples = 2, .t = 13, .k = 9, .n = 300, .rank = 5});  // several slices of columns
}

TEST_CASE("a row has the same bits alone and beside others") {
  for (const DType type : {DType::f32, DType::bf16}) {
    Case c{.samples = 1, .t = 14, .k = 600, .n = 290, .rank = 18};
    const Floats all = runner(c, 1, 3, {type, false}).forward();
    c.t = 1;
    const Floats one = runner(c, 1, 3, {type, false}).forward();
    CHECK(std::equal(one.begin(), one.end(), all.begin()));
  }
}

TEST_CASE("the gradient of a frozen matrix is never made, and that of x only where it is wanted") {
  const Case c{};
  NodeRunner with = runner(c), without = runner(c, 4, 3, {}, false);
  const Floats dy = numbers(7, c.rows() * c.n);
  with.forward();
  without.forward();
  const auto all = with.backward(dy), few = without.backward(dy);
  CHECK(all[1].empty());
  CHECK(few[0].empty());
  CHECK(few[2] == all[2]);
  CHECK(few[3] == all[3]);
  CHECK(without.node().backward_flops() < with.node().backward_flops());
}

TEST_CASE("the same bits for any thread count and stride, and from runs of half the shards") {
  const Case c{.samples = 4, .t = 23, .k = 70, .n = 130, .rank = 9, .rate = 0.25};
  const Floats dy = numbers(7, c.rows() * c.n);
  std::vector<Floats> first;
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    NodeRunner run = runner(c, 4, threads);
    std::vector<Floats> got{run.forward()};
    for (Floats& g : run.backward(dy)) got.push_back(g);
    if (first.empty()) first = got;
    CHECK(got == first);
  }
  set_num_threads(0);
}

TEST_CASE("dropout drops on the way to the adapter alone") {
  Case c{.bias = false, .residual = false, .rate = 0.5};
  NodeRunner dropped = runner(c), plain = runner({.bias = false, .residual = false});
  const Floats y = dropped.forward(), whole = plain.forward(), dy = numbers(7, c.rows() * c.n);
  CHECK(y != whole);
  const auto got = dropped.backward(dy), all = plain.backward(dy);
  CHECK(got[0] != all[0]);
  // y - x w is linear in the kept numbers of x: <dy, y - x w> = <a, da> = <b, db>, and dx has the same share.
  const auto in = inputs(c);
  std::vector<double> base(static_cast<size_t>(c.rows() * c.n));
  reference::gemm<double>(c.rows(), c.n, c.k, widen(in[0]).data(), widen(in[1]).data(), false, base.data());
  double low = 0, of_a = 0, of_b = 0, of_x = 0, whole_y = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    low += dy[i] * (y[i] - base[i]);
    whole_y += static_cast<double>(dy[i]) * y[i];
  }
  for (size_t i = 0; i < in[2].size(); ++i) of_a += static_cast<double>(in[2][i]) * got[2][i];
  for (size_t i = 0; i < in[3].size(); ++i) of_b += static_cast<double>(in[3][i]) * got[3][i];
  for (size_t i = 0; i < in[0].size(); ++i) of_x += static_cast<double>(in[0][i]) * got[0][i];
  CHECK(of_a == doctest::Approx(low).epsilon(1e-4));
  CHECK(of_b == doctest::Approx(low).epsilon(1e-4));
  CHECK(of_x == doctest::Approx(whole_y).epsilon(1e-4));
}

TEST_CASE("bf16: operands, results and gradients are rounded") {
  check_bf16({.samples = 4, .t = 9, .k = 40, .n = 33, .rank = 8, .residual = false});
  check_bf16({.samples = 2, .t = 7, .k = 40, .n = 290, .rank = 8, .residual = false});
}
