// levels, units: linear rows and node against the double reference, gradients by complex step, threads bit-equal,
// micro-batches of whole shards bit-equal.
#include "mudd/ops/linear/linear.h"
#include "complex_step.h"
#include "mudd/base/parallel.h"
#include "mudd/ops/linear/reference.h"
#include "node_runner.h"

using namespace mudd;
using namespace mudd::test;
using Floats = std::vector<float>;

namespace {

struct Case {
  int64_t samples = 4, t = 7, k = 13, n = 19;
  Activation activation = Activation::none;
  bool transposed = false, bias = true, residual = true;
  int64_t rows() const { return samples * t; }
};

Attributes attributes(const Case& c) {
  Attributes a;
  a.values["activation"] = std::string(name_of(c.activation));
  a.values["transposed"] = c.transposed;
  return a;
}

// x, w, bias, residual; absent ones are empty.
std::vector<Floats> inputs(const Case& c) {
  return {numbers(1, c.rows() * c.k), numbers(2, c.k * c.n), c.bias ? numbers(3, c.n) : Floats{},
          c.residual ? numbers(4, c.rows() * c.n) : Floats{}};
}

NodeRunner runner(const Case& c, int shards = 4, int64_t padding = 3, NodeRunner::Types types = {}) {
  const auto in = inputs(c);
  const std::vector<int64_t> w = c.transposed ? std::vector<int64_t>{c.n, c.k} : std::vector<int64_t>{c.k, c.n};
  return {"linear",
          attributes(c),
          {{{c.samples, c.t, c.k}, in[0], true, !types.wide_outputs},
           {w, in[1]},
           {{c.n}, in[2]},
           {{c.samples, c.t, c.n}, in[3], false}},
          Shards::cut(c.samples, shards),
          padding,
          types};
}

template <class N>
std::vector<N> reference_of(const Case& c, const std::vector<std::vector<N>>& in) {
  std::vector<N> y(static_cast<size_t>(c.rows() * c.n));
  reference::linear<N>(c.rows(), c.k, c.n, c.activation, c.transposed, in[0].data(), in[1].data(),
                       c.bias ? in[2].data() : nullptr, c.residual ? in[3].data() : nullptr, y.data());
  return y;
}

// d(sum dy*y)/d(input of) by the complex step on the reference.
std::vector<double> gradient(const Case& c, const Floats& dy, size_t of) {
  return complex_step(inputs(c), of, dy, [&](const auto& in) { return reference_of(c, in); });
}

void check_case(const Case& c) {
  std::vector<std::vector<double>> wide;
  for (const Floats& v : inputs(c)) wide.push_back(widen(v));
  const Floats dy = numbers(5, c.rows() * c.n);
  NodeRunner run = runner(c);
  const Floats y = run.forward();
  CHECK(distance(y, reference_of(c, wide), y.size()) <= tolerance("linear.y"));
  const auto got = run.backward(dy);
  for (size_t i = 0; i < (c.bias ? 3 : 2); ++i) {
    CAPTURE(i);
    CHECK(distance(got[i], gradient(c, dy, i), got[i].size()) <= tolerance("linear.gradients"));
  }
  // Accumulating adds the very same numbers to what is there.
  const auto before = inputs(c), added = run.backward(dy, {before[0], before[1], before[2]});
  for (size_t i = 0; i < (c.bias ? 3 : 2); ++i)
    for (size_t j = 0; j < got[i].size(); ++j) CHECK(added[i][j] == before[i][j] + got[i][j]);
}

}  // namespace

TEST_CASE("linear rows: slope times gradient and sums, on every edge of the lanes") {
  for_each_row(linear_rows(), [](const auto& row) {
    for (int64_t n : {1, 7, 8, 9, 15, 16, 17, 33})
      for (Activation a : {Activation::none, Activation::silu, Activation::squared_relu}) {
        const int64_t rows = 5, stride = n + 2;
        const Floats pre = numbers(1, rows * n), dy = numbers(2, rows * stride);
        Floats dpre(pre.size()), dbias(n, 7.0f);
        row.kernels->bwd(1, 4, n, a, pre.data(), false, dy.data(), stride, dpre.data(), dbias.data());
        std::vector<double> want(pre.size()), sum(n);
        for (int64_t r = 1; r < 4; ++r)
          for (int64_t j = 0; j < n; ++j) {
            want[r * n + j] = dy[r * stride + j] * reference::activate_slope(a, pre[r * n + j]);
            sum[j] += want[r * n + j];
          }
        if (a != Activation::none) CHECK(distance(dpre, want, want.size()) <= tolerance("linear.dpre"));
        CHECK(distance(dbias, sum, sum.size()) <= tolerance("linear.dpre"));
        row.kernels->bwd(2, 2, n, a, pre.data(), false, dy.data(), stride, dpre.data(), dbias.data());
        CHECK(dbias == Floats(n, 0.0f));
        // The output again, and from the slopes in place of the numbers the same gradient.
        Floats y(pre.size() + 1, 7.0f), slopes = pre, from_slopes(pre.size());
        row.kernels->remake(rows * n, a, slopes.data(), y.data(), slopes.data());
        CHECK(y.back() == 7.0f);
        for (int64_t i = 0; i < rows * n; ++i)
          CHECK(std::fabs(y[i] - reference::activate<double>(a, pre[i])) <= tolerance("linear.remade"));
        row.kernels->bwd(1, 4, n, a, slopes.data(), true, dy.data(), stride, from_slopes.data(), dbias.data());
        if (a != Activation::none) CHECK(from_slopes == dpre);
      }
  });
}

TEST_CASE("linear equals the reference with every activation, both layouts of w, optional inputs") {
  Case c;
  for (Activation a : {Activation::none, Activation::silu, Activation::gelu_tanh, Activation::gelu_erf,
                       Activation::relu, Activation::squared_relu})
    for (int options = 0; options < 8; ++options) {
      CAPTURE(name_of(a));
      CAPTURE(options);
      c.activation = a;
      c.transposed = options & 1;
      c.bias = options & 2;
      c.residual = options & 4;
      check_case(c);
    }
  check_case({.samples = 1, .t = 1, .k = 1, .n = 1});
  check_case({.samples = 3, .t = 11, .k = 5, .n = 40, .activation = Activation::silu});
}

TEST_CASE("the same bits for any thread count and stride") {
  Case c{.samples = 5, .t = 23, .k = 70, .n = 130, .activation = Activation::gelu_tanh};
  const Floats dy = numbers(5, c.rows() * c.n);
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

TEST_CASE("two runs of half the shards add up to the bits of one run") {
  const Case whole{.samples = 4, .t = 9, .k = 21, .n = 35, .activation = Activation::silu};
  const auto in = inputs(whole);
  const Floats dy = numbers(5, whole.rows() * whole.n);
  NodeRunner all = runner(whole);
  const Floats y = all.forward();
  const auto want = all.backward(dy);
  std::vector<Floats> sum(3);
  Floats halves_y, halves_dx;
  for (int half = 0; half < 2; ++half) {
    const int64_t rows = whole.rows() / 2;
    const auto part = [&](const Floats& v, int64_t cols) {
      return Floats(v.begin() + half * rows * cols, v.begin() + (half + 1) * rows * cols);
    };
    NodeRunner run("linear", attributes(whole),
                   {{{2, whole.t, whole.k}, part(in[0], whole.k)},
                    {{whole.k, whole.n}, in[1]},
                    {{whole.n}, in[2]},
                    {{2, whole.t, whole.n}, part(in[3], whole.n), false}},
                   Shards::cut(2, 2));
    for (float v : run.forward()) halves_y.push_back(v);
    sum[0].clear();  // dx is a value per row: never added over runs
    const auto got = run.backward(part(dy, whole.n), sum);
    for (float v : got[0]) halves_dx.push_back(v);
    sum = {{}, got[1], got[2]};
  }
  CHECK(halves_y == y);
  CHECK(halves_dx == want[0]);
  CHECK(sum[1] == want[1]);
  CHECK(sum[2] == want[2]);
}

TEST_CASE("only what is needed is saved and asked for") {
  Case c;
  CHECK(runner(c).needs().saved_.empty());
  c.activation = Activation::relu;
  CHECK(runner(c).needs().saved_ == std::vector<int64_t>{c.rows() * c.n * 4, 1});
  CHECK(runner(c).node().passes_gradient() == 3);
  c.residual = false;
  CHECK(runner(c).node().passes_gradient() == -1);
}

TEST_CASE("the output is made again to the bit, and without gradients it is the same") {
  Case c{.samples = 3, .t = 11, .k = 21, .n = 37, .residual = false};
  for (Activation a :
       {Activation::silu, Activation::gelu_tanh, Activation::gelu_erf, Activation::relu, Activation::squared_relu})
    for (DType compute : {DType::f32, DType::bf16}) {
      c.activation = a;
      const auto in = inputs(c);
      const auto run_with = [&](bool wants) {
        const bool narrow = compute == DType::bf16;
        return NodeRunner(
            "linear", attributes(c),
            {{{c.samples, c.t, c.k}, in[0], wants, narrow}, {{c.k, c.n}, in[1], wants}, {{c.n}, in[2], wants}},
            Shards::cut(c.samples, 1), 3, {compute, !narrow});
      };
      NodeRunner run = run_with(true), plain = run_with(false);
      const Floats y = run.forward();
      const Floats dy = numbers(5, c.rows() * c.n);
      const auto gradients = run.backward(dy);
      CHECK(run.node().remakes_output());
      CHECK(run.remake() == y);
      CHECK(run.backward(dy) == gradients);
      CHECK_FALSE(plain.node().remakes_output());
      CHECK(plain.forward() == y);
    }
  c.residual = true;
  CHECK_FALSE(runner(c).node().remakes_output());
}

TEST_CASE("bf16: near the reference, the same bits for any threads and padding") {
  for (const bool transposed : {false, true})
    for (const Activation a : {Activation::none, Activation::silu}) {
      const Case c{.k = 37, .n = 21, .activation = a, .transposed = transposed, .residual = a == Activation::none};
      std::vector<std::vector<double>> wide;
      for (const Floats& v : inputs(c)) wide.push_back(widen(v));
      const Floats dy = rounded(numbers(5, c.rows() * c.n));
      const auto all = [&](int64_t padding) {
        NodeRunner run = runner(c, 4, padding, {DType::bf16, false});
        std::vector<Floats> out{run.forward()};
        for (Floats& g : run.backward(dy)) out.push_back(g);
        return out;
      };
      const auto got = all(3);
      CHECK(distance(got[0], reference_of(c, wide), got[0].size()) <= tolerance("linear.bf16_y"));
      for (size_t i = 0; i < 3; ++i)
        CHECK(distance(got[i + 1], gradient(c, dy, i), got[i + 1].size()) <= tolerance("linear.bf16_gradients"));
      for (int threads : {1, 2, 3}) {
        set_num_threads(threads);
        CHECK(all(threads) == got);
      }
      set_num_threads(0);
    }
}

TEST_CASE("mistakes are named") {
  const auto make = [](std::vector<NodeRunner::Input> in, const char* activation = "none") {
    Attributes a;
    a.values["activation"] = std::string(activation);
    NodeRunner("linear", a, std::move(in), Shards{});
  };
  const Floats v(64, 1.0f);
  CHECK_THROWS_WITH_AS(make({{{1, 4}, v}, {{5, 3}, v}}),
                       "[linear] w: expected 4 rows as x has columns, got float32[5, 3]", Error);
  CHECK_THROWS_WITH_AS(make({{{1, 4}, v}, {{4}, v}}), "[linear] w: expected a matrix, got float32[4]", Error);
  CHECK_THROWS_WITH_AS(make({{{1, 4}, v}, {{4, 3}, v}, {{4}, v}}),
                       "[linear] bias: expected float32[3], got float32[4]", Error);
  CHECK_THROWS_WITH_AS(make({{{1, 4}, v}, {{4, 3}, v}, {{3}, v}, {{2, 3}, v}}),
                       "[linear] residual: expected float32[1, 3], got float32[2, 3]", Error);
  CHECK_THROWS_AS(make({{{1, 4}, v}, {{4, 3}, v}}, "swish"), Error);
}
