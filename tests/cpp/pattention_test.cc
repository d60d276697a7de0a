// levels: Theta rows and the node against the double reference, gradients by complex step, threads, blocks of
// rows, recomputed scores and micro-batches bit-equal, rows of zero norm, dropped samples.
#include <complex>

#include "mudd/base/parallel.h"
#include "mudd/ops/pattention/pattention.h"
#include "mudd/ops/pattention/reference.h"
#include "node_runner.h"

using namespace mudd;
using namespace mudd::test;
using C = std::complex<double>;
using Floats = std::vector<float>;

namespace {

constexpr const char* kNorms[] = {"l2_norm_gelu", "gelu_l2_norm", "l2_norm", "softmax", "gelu", "gelu_layer_norm"};

struct Case {
  int64_t samples = 4, t = 3, d_in = 11, n = 17, d_out = 9;
  SlotNorm norm = SlotNorm::l2_norm_gelu;
  Activation gelu = Activation::gelu_tanh;
  bool biases = true, residual = true, keep_scores = true;
  double zoom = 0, drop_path = 0;
  int groups = 1;
  int64_t rows() const { return samples * t; }

  Theta theta() const {
    return {norm, gelu, static_cast<float>(std::sqrt(zoom > 0 ? zoom : double(n))), 1e-3f, 1.3f};
  }
  Attributes attributes() const {
    Attributes a;
    a.values["norm"] = std::string(kNorms[static_cast<int>(norm)]);
    a.values["gelu"] = std::string(name_of(gelu));
    a.values["eps"] = 1e-3;
    a.values["scale_factor"] = 1.3;
    a.values["zoom"] = zoom;
    a.values["keep_scores"] = keep_scores;
    a.values["drop_path"] = drop_path;
    return a;
  }
};

// x, the first projection's key, value, key bias, value bias, the residual, further projections; absent ones are
// empty.
std::vector<Floats> inputs(const Case& c) {
  std::vector<Floats> in{numbers(1, c.rows() * c.d_in)};
  for (int g = 0; g < c.groups; ++g) {
    const uint64_t seed = 10 * static_cast<uint64_t>(g);
    in.push_back(numbers(seed + 3, c.n * c.d_in));
    in.push_back(numbers(seed + 4, c.n * c.d_out));
    in.push_back(c.biases ? numbers(seed + 5, c.n) : Floats{});
    in.push_back(c.biases ? numbers(seed + 6, c.d_out) : Floats{});
    if (g == 0) in.push_back(c.residual ? numbers(2, c.rows() * c.d_out) : Floats{});
  }
  return in;
}

// narrow: x, y and their gradients lie in memory in bf16.
NodeRunner runner(const Case& c, const std::vector<Floats>& in, int shards = 4, int64_t padding = 3,
                  DType compute = DType::f32, bool narrow = false) {
  const std::vector<int64_t> shapes[4] = {{c.n, c.d_in}, {c.n, c.d_out}, {c.n}, {c.d_out}};
  std::vector<NodeRunner::Input> given{{{c.samples, c.t, c.d_in}, in[0], true, narrow}};
  for (size_t i = 1; i < in.size(); ++i) {
    if (i == 5) given.push_back({{c.samples, c.t, c.d_out}, in[5], false});
    else given.push_back({shapes[(i < 5 ? i - 1 : i - 6) % 4], in[i]});
  }
  return {"pattention", c.attributes(), given, Shards::cut(c.samples, shards), padding, {compute, !narrow}};
}

template <class N>
std::vector<N> reference_of(const Case& c, const std::vector<std::vector<N>>& in) {
  std::vector<N> y(static_cast<size_t>(c.rows() * c.d_out));
  const auto given = [&](size_t i) { return in[i].empty() ? nullptr : in[i].data(); };
  reference::pattention<N>(c.theta(), c.rows(), c.d_in, c.n, c.d_out, in[0].data(), in[1].data(), in[2].data(),
                           given(3), given(4), given(5), y.data());
  return y;
}

// d(sum dy*y)/d(input of) by the complex step on the reference.
std::vector<double> gradient(const Case& c, const std::vector<Floats>& at, const Floats& dy, size_t of) {
  const double h = 1e-30;
  std::vector<std::vector<C>> in;
  for (const Floats& v : at) in.emplace_back(v.begin(), v.end());
  std::vector<double> g(in[of].size());
  for (size_t i = 0; i < g.size(); ++i) {
    in[of][i] += C(0, h);
    const std::vector<C> y = reference_of(c, in);
    in[of][i] -= C(0, h);
    for (size_t j = 0; j < y.size(); ++j) g[i] += dy[j] * y[j].imag() / h;
  }
  return g;
}

void check_case(const Case& c) {
  const auto in = inputs(c);
  std::vector<std::vector<double>> wide;
  for (const Floats& v : in) wide.push_back(widen(v));
  const Floats dy = numbers(7, c.rows() * c.d_out);
  NodeRunner run = runner(c, in);
  const Floats y = run.forward();
  CHECK(distance(y, reference_of(c, wide), y.size()) <= tolerance(32));
  const auto got = run.backward(dy);
  for (size_t i : {0, 1, 2, 3, 4}) {
    if (in[i].empty()) continue;
    CAPTURE(i);
    CHECK(distance(got[i], gradient(c, in, dy, i), got[i].size()) <= tolerance(200));
  }
  // Accumulating adds the very same numbers to what is there.
  const auto added = run.backward(dy, in);
  for (size_t i : {0, 1, 2, 3, 4})
    for (size_t j = 0; j < got[i].size(); ++j) CHECK(added[i][j] == in[i][j] + got[i][j]);
}

// y and all gradients of one run.
std::vector<Floats> everything(const Case& c, const std::vector<Floats>& in, const Floats& dy,
                               int64_t padding = 3) {
  NodeRunner run = runner(c, in, 4, padding);
  std::vector<Floats> out{run.forward()};
  for (Floats& g : run.backward(dy)) out.push_back(g);
  return out;
}

// Every output and gradient in bf16; dy for each output. Of fp32 memory, what would be stored in bf16 is rounded.
std::vector<Floats> everything_bf16(const Case& c, const std::vector<Floats>& in, const Floats& dy, bool narrow,
                                    int64_t padding = 3) {
  NodeRunner run = runner(c, in, 4, padding, DType::bf16, narrow);
  std::vector<Floats> out{run.forward()};
  for (int g = 1; g < c.groups; ++g) out.push_back(run.forward(g));
  if (!c.residual)
    for (Floats& y : out) y = rounded(y);
  for (Floats& g : run.backward_all(std::vector<Floats>(static_cast<size_t>(c.groups), dy))) out.push_back(g);
  out[static_cast<size_t>(c.groups)] = rounded(out[static_cast<size_t>(c.groups)]);  // dx
  return out;
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
          // n = 1: a norm leaves nothing to move, so the slope is what rounding leaves of numbers of size 1.
          const double scale = n == 1 ? 1e3 : 64;
          CHECK(distance(Floats(s.begin() + r * stride, s.begin() + r * stride + n), want, n) <= tolerance(32));
          for (int64_t i = 0; i < n; ++i) CHECK(std::abs(ds[r * stride + i] - slope[i]) <= tolerance(scale) * 8);
          CHECK(s[r * stride + n] == 7.0f);
        }
        CHECK(distance(s, widen(again), s.size()) <= tolerance(4));
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

TEST_CASE("a row of zero norm gives zero output and zero gradient") {
  for (SlotNorm norm : {SlotNorm::l2_norm_gelu, SlotNorm::gelu_l2_norm, SlotNorm::l2_norm}) {
    for (double eps : {1e-5, 0.0}) {
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
      CHECK(distance(s, widen(plain), n) <= tolerance(16));
    });
  }
}

TEST_CASE("the same bits for any thread count, block of rows, stride, and with scores computed again") {
  Case c{.samples = 4, .t = 150, .d_in = 40, .n = 70, .d_out = 50};
  const auto in = inputs(c);
  const Floats dy = numbers(7, c.rows() * c.d_out);
  std::vector<Floats> first;
  for (int threads : {1, 2, 3, 8}) {  // 600 rows: blocks of 48 on few threads, one block on eight
    set_num_threads(threads);
    for (bool keep : {true, false}) {
      c.keep_scores = keep;
      const auto got = everything(c, in, dy, threads);
      if (first.empty()) first = got;
      CHECK(got == first);
    }
  }
  set_num_threads(0);
}

TEST_CASE("projections of one x are the projections alone, and their dx is the sum") {
  const Case c{.residual = false, .groups = 3};
  const auto in = inputs(c);
  const Floats dy = numbers(7, c.rows() * c.d_out);
  NodeRunner all = runner(c, in);
  for (int g = 0; g < 3; ++g) {
    Case one = c;
    one.groups = 1;
    std::vector<Floats> own{in[0]};
    for (int i = 0; i < 4; ++i) own.push_back(in[static_cast<size_t>((g == 0 ? 1 : 2 + 4 * g) + i)]);
    own.push_back({});
    NodeRunner alone = runner(one, own);
    CHECK(all.forward(g) == alone.forward());
    if (g > 0) continue;  // only the first output has a gradient here: the others count as zero
    const auto got = all.backward(dy), want = alone.backward(dy);
    for (size_t i : {0, 1, 2, 3, 4}) CHECK(got[i] == want[i]);
    for (size_t i = 6; i < got.size(); ++i) CHECK(got[i] == Floats(got[i].size(), 0.0f));
  }
}

TEST_CASE("two runs of half the shards add up to the bits of one run") {
  Case whole;
  const auto in = inputs(whole);
  const Floats dy = numbers(7, whole.rows() * whole.d_out);
  const auto want = everything(whole, in, dy);
  Case half = whole;
  half.samples = 2;
  std::vector<Floats> sum(6);
  for (int64_t h = 0; h < 2; ++h) {
    const auto part = [&](const Floats& v, int64_t cols) {
      const int64_t size = half.rows() * cols;
      return Floats(v.begin() + h * size, v.begin() + (h + 1) * size);
    };
    auto own = in;
    own[0] = part(in[0], whole.d_in);
    own[5] = part(in[5], whole.d_out);
    NodeRunner run = runner(half, own, 2);
    CHECK(run.forward() == part(want[0], whole.d_out));
    sum[0].clear();
    const auto got = run.backward(part(dy, whole.d_out), sum);
    CHECK(got[0] == part(want[1], whole.d_in));
    sum = {{}, got[1], got[2], got[3], got[4], {}};
  }
  for (size_t i = 1; i < 5; ++i) CHECK(sum[i] == want[i + 1]);
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

TEST_CASE("bf16: near the reference of rounded operands; memory in bf16 gives the bits of fp32 rounded once") {
  for (int kind = 0; kind < 12; ++kind) {
    CAPTURE(kind);
    const Case c{.t = 5,
                 .n = 33,
                 .norm = static_cast<SlotNorm>(kind / 2),
                 .gelu = kind % 2 ? Activation::gelu_erf : Activation::gelu_tanh,
                 .biases = kind % 3 != 0,
                 .residual = kind % 4 == 0};
    auto in = inputs(c);
    for (size_t i : {0, 1, 2}) in[i] = rounded(in[i]);
    const Floats dy = rounded(numbers(7, c.rows() * c.d_out));
    const auto got = everything_bf16(c, in, dy, true);
    CHECK(got == everything_bf16(c, in, dy, false));
    std::vector<std::vector<double>> wide;
    for (const Floats& v : in) wide.push_back(widen(v));
    // Roundings of A, S and y; then of dA and dx.
    CHECK(distance(got[0], reference_of(c, wide), got[0].size()) <= bf16_tolerance(3));
    for (size_t i : {0, 1, 2, 3, 4}) {
      if (in[i].empty()) continue;
      CAPTURE(i);
      CHECK(distance(got[i + 1], gradient(c, in, dy, i), got[i + 1].size()) <= bf16_tolerance(8));
    }
  }
}

TEST_CASE("bf16: several projections, dropped samples, scores computed again, blocks of rows, threads") {
  const auto check = [](Case c) {
    auto in = inputs(c);
    in[0] = rounded(in[0]);
    const Floats dy = rounded(numbers(7, c.rows() * c.d_out));
    const auto want = everything_bf16(c, in, dy, false);
    for (int threads : {1, 3})
      for (bool keep : {true, false}) {
        set_num_threads(threads);
        c.keep_scores = keep;
        CHECK(everything_bf16(c, in, dy, true, threads) == want);
      }
    set_num_threads(0);
  };
  check({.samples = 1, .t = 1, .d_in = 1, .n = 1, .d_out = 1, .residual = false});
  check({.residual = false, .groups = 3});
  check({.samples = 8, .t = 2, .residual = false, .drop_path = 0.4});
  check({.samples = 8, .t = 2, .drop_path = 0.4});
  check({.samples = 4, .t = 150, .d_in = 40, .n = 70, .d_out = 50, .residual = false, .groups = 2});
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
  CHECK_THROWS_AS(make({{{1, 4}, v}, {{5, 4}, v}, {{5, 4}, v}}, "gelu", 1.0), Error);
  CHECK_THROWS_AS(make({{{1, 4}, v}}), Error);
}
