// levels: Theta rows and the node against the double reference, gradients by complex step, rows of zero norm,
// dropped samples.
#include <complex>

#include "mudd/ops/pattention/pattention.h"
#include "mudd/ops/pattention/reference.h"
#include "pattention_runner.h"

using namespace mudd;
using namespace mudd::test;
using namespace mudd::test::pattention;
using C = std::complex<double>;

namespace {

void check_case(const Case& c) {
  const auto in = inputs(c);
  std::vector<std::vector<double>> wide;
  for (const Floats& v : in) wide.push_back(widen(v));
  const Floats dy = numbers(7, c.rows() * c.d_out);
  NodeRunner run = runner(c, in);
  const Floats y = run.forward();
  CHECK(distance(y, reference_of(c, wide), y.size()) <= tolerance("pattention.y"));
  const auto got = run.backward(dy);
  for (size_t i : {0, 1, 2, 3, 4}) {
    if (in[i].empty()) continue;
    CAPTURE(i);
    CHECK(distance(got[i], gradient(c, in, dy, i), got[i].size()) <= tolerance("pattention.gradients"));
  }
  // Accumulating adds the very same numbers to what is there.
  const auto added = run.backward(dy, in);
  for (size_t i : {0, 1, 2, 3, 4})
    for (size_t j = 0; j < got[i].size(); ++j) CHECK(added[i][j] == in[i][j] + got[i][j]);
}

}  // namespace

TEST_CASE("pattention rows: Theta and its slope, on every edge of the lanes") {
  for_each_row(pattention_rows(), [](const auto& row) {
    for (int64_t n : {1, 7, 8, 9, 15, 16, 17, 33, 65})
      for (int kind = 0; kind < 12; ++kind) {
        const Case c{.n = n,
                     .norm = static_cast<SlotNorm>(kind / 2),
                     .gelu = kind % 2 ? Activation::gelu_erf : Activation::gelu_tanh};
        CAPTURE(n);
        CAPTURE(kind);
        const int64_t rows = 3, stride = n + 2;
        Floats a = numbers(1, rows * stride), ds = numbers(2, rows * stride), s(a.size(), 7.0f),
               again(a.size(), 7.0f);
        const Floats factors{1.0f, 0.0f, 2.0f}, upstream = ds;
        Floats stats(2 * rows);
        const Theta theta = c.theta();
        row.kernels->fwd(rows, n, theta, a.data(), stride, factors.data(), s.data(), stride, stats.data());
        row.kernels->bwd(rows, n, theta, a.data(), stride, factors.data(), stats.data(), ds.data(), stride,
                         again.data(), stride);
        for (int64_t r = 0; r < rows; ++r) {
          std::vector<double> want(n), slope(n);
          for (int64_t i = 0; i < n; ++i) {
            std::vector<C> z(a.begin() + r * stride, a.begin() + r * stride + n);
            z[i] += C(0, 1e-30);
            reference::pattention_theta(theta, n, z.data());
            for (int64_t j = 0; j < n; ++j) {
              want[j] = factors[r] * theta.scale * z[j].real();
              slope[i] += factors[r] * theta.scale * upstream[r * stride + j] * z[j].imag() / 1e-30;
            }
          }
          // n = 1: a normalised single value is constant, so the slope is a rounding error of values of size 1.
          const double cancels = n == 1 ? 15 : 1;
          CHECK(distance(Floats(s.begin() + r * stride, s.begin() + r * stride + n), want, n) <=
                tolerance("pattention.weights"));
          for (int64_t i = 0; i < n; ++i)
            CHECK(std::abs(ds[r * stride + i] - slope[i]) <= tolerance("pattention.dweights") * cancels);
          CHECK(s[r * stride + n] == 7.0f);
        }
        CHECK(distance(s, widen(again), s.size()) <= tolerance("pattention.again"));
      }
  });
}

TEST_CASE("pattention equals the reference with every normalisation, biases, zoom") {
  for (int kind = 0; kind < 12; ++kind) {
    CAPTURE(kind);
    check_case({.norm = static_cast<SlotNorm>(kind / 2),
                .gelu = kind % 2 ? Activation::gelu_erf : Activation::gelu_tanh,
                .biases = kind % 3 != 0,
                .residual = kind % 4 != 0,
                .zoom = kind % 5 == 0 ? 6.0 : 0.0});
  }
  check_case({.samples = 1, .t = 1, .n = 1, .norm = SlotNorm::gelu});
  check_case({.samples = 3, .t = 5, .d_in = 33, .n = 70, .d_out = 40, .keep_scores = false});
}

TEST_CASE("a row of zero norm, or of zero variance without eps, gives zero output and zero gradient") {
  for (SlotNorm norm :
       {SlotNorm::l2_norm_gelu, SlotNorm::gelu_l2_norm, SlotNorm::l2_norm, SlotNorm::gelu_layer_norm}) {
    for (double eps : {1e-5, 0.0}) {
      if (norm == SlotNorm::gelu_layer_norm && eps > 0) continue;  // gradients are 1 / sqrt(eps) there
      Case c{.norm = norm, .biases = false, .residual = false};
      auto in = inputs(c);
      std::fill_n(in[0].begin() + 2 * c.d_in, c.d_in, 0.0f);  // one row of x
      Attributes a = c.attributes();
      a.values["eps"] = eps;
      const auto run = [&](const std::vector<Floats>& given) {
        return NodeRunner(
            "pattention", a,
            {{{c.samples, c.t, c.d_in}, given[0]}, {{c.n, c.d_in}, given[1]}, {{c.n, c.d_out}, given[2]}},
            Shards::cut(4, 4));
      };
      const Floats dy = numbers(7, c.rows() * c.d_out);
      NodeRunner one = run(in);
      const Floats y = one.forward();
      const auto g = one.backward(dy);
      for (int64_t i = 0; i < c.d_out; ++i) CHECK(y[2 * c.d_out + i] == 0.0f);
      for (int64_t i = 0; i < c.d_in; ++i) CHECK(g[0][2 * c.d_in + i] == 0.0f);
      CHECK(distance(y, widen(y), y.size()) == 0.0);  // finite
      for (size_t i : {0, 1, 2}) CHECK(distance(g[i], widen(g[i]), g[i].size()) == 0.0);
      std::fill(in[1].begin(), in[1].end(), 0.0f);  // all keys zero: nothing comes out, nothing goes back
      NodeRunner none = run(in);
      CHECK(none.forward() == Floats(y.size(), 0.0f));
      for (const Floats& zero : none.backward(dy)) CHECK(zero == Floats(zero.size(), 0.0f));
    }
  }
}

TEST_CASE("tiny and huge scores keep their direction without eps") {
  for (float size : {1e-25f, 1e25f}) {
    const int64_t n = 20;
    Theta theta{SlotNorm::l2_norm, Activation::gelu_tanh, 2.0f, 0.0f, 1.0f};
    Floats a = numbers(1, n), s(n), plain(n), stats(2);
    for_each_row(pattention_rows(), [&](const auto& row) {
      row.kernels->fwd(1, n, theta, a.data(), n, nullptr, plain.data(), n, stats.data());
      Floats scaled = a;
      for (float& v : scaled) v *= size;
      row.kernels->fwd(1, n, theta, scaled.data(), n, nullptr, s.data(), n, stats.data());
      CHECK(distance(s, widen(plain), n) <= tolerance("pattention.scaled"));
    });
  }
}

TEST_CASE("dropped samples pass the residual on; the others are scaled up") {
  Case c{.samples = 64, .t = 2, .drop_path = 0.25};
  const auto in = inputs(c);
  Case plain = c;
  plain.drop_path = 0;
  const Floats dy = numbers(7, c.rows() * c.d_out);
  const auto got = everything(c, in, dy), full = everything(plain, in, dy);
  int dropped = 0;
  for (int64_t s = 0; s < c.samples; ++s) {
    const int64_t at = s * c.t * c.d_out, size = c.t * c.d_out;
    const bool gone = std::equal(got[0].begin() + at, got[0].begin() + at + size, in[5].begin() + at);
    dropped += gone;
    for (int64_t i = at; !gone && i < at + size; ++i)
      CHECK(got[0][i] - in[5][i] == doctest::Approx((full[0][i] - in[5][i]) / 0.75).epsilon(1e-4));
    for (int64_t i = s * c.t * c.d_in; i < (s + 1) * c.t * c.d_in; ++i)
      CHECK(got[1][i] == doctest::Approx(gone ? 0.0 : full[1][i] / 0.75).epsilon(1e-4));
  }
  CHECK(dropped >= 8);
  CHECK(dropped <= 26);
  // The gradient of the value bias counts kept samples only.
  double sum = 0;
  for (int64_t r = 0; r < c.rows(); ++r) {
    const int64_t s = r / c.t, at = s * c.t * c.d_out;
    const bool gone = std::equal(got[0].begin() + at, got[0].begin() + at + c.d_out, in[5].begin() + at);
    if (!gone) sum += dy[r * c.d_out] / 0.75;
  }
  CHECK(got[5][0] == doctest::Approx(sum).epsilon(1e-4));
}

TEST_CASE("a drop_path of 1 leaves the residual and no gradient") {
  Case c{.samples = 3, .t = 2, .drop_path = 1};
  const auto in = inputs(c);
  const auto got = everything(c, in, numbers(7, c.rows() * c.d_out));
  CHECK(got[0] == in[5]);
  for (size_t i = 1; i <= 5; ++i) CHECK(got[i] == Floats(got[i].size(), 0.0f));
}

TEST_CASE("mistakes are named") {
  const Floats v(64, 1.0f);
  const auto make = [&](std::vector<NodeRunner::Input> in, const char* norm = "softmax", double drop = 0) {
    Attributes a;
    a.values["norm"] = std::string(norm);
    a.values["drop_path"] = drop;
    NodeRunner("pattention", a, std::move(in), Shards{});
  };
  CHECK_THROWS_WITH_AS(make({{{1, 4}, v}, {{5, 3}, v}, {{5, 4}, v}}),
                       "[pattention] key: expected float32[n, 4] as x has columns, got float32[5, 3]", Error);
  CHECK_THROWS_WITH_AS(make({{{1, 4}, v}, {{5, 4}, v}, {{4, 4}, v}}),
                       "[pattention] value: expected float32[5, d_out] as key has rows, got float32[4, 4]", Error);
  CHECK_THROWS_WITH_AS(make({{{1, 4}, v}, {{5, 4}, v}, {{5, 4}, v}, {{4}, v}}),
                       "[pattention] key_bias: expected float32[5], got float32[4]", Error);
  CHECK_THROWS_WITH_AS(make({{{1, 4}, v}, {{5, 4}, v}, {{5, 4}, v}, {{5}, v}, {{4}, v}, {{1, 3}, v}}),
                       "[pattention] residual: expected float32[1, 4], got float32[1, 3]", Error);
  CHECK_THROWS_AS(make({{{1, 4}, v}, {{5, 4}, v}, {{5, 4}, v}}, "l1"), Error);
  CHECK_THROWS_AS(make({{{1, 4}, v}, {{5, 4}, v}, {{5, 4}, v}}, "gelu", 1.5), Error);
  CHECK_THROWS_AS(make({{{1, 4}, v}}), Error);
}
