// levels: activation rows against the double reference, slopes by complex step, in place, names.
#include <cmath>

#include "compare.h"
#include "mudd/base/parallel.h"
#include "mudd/graph/node.h"
#include "mudd/ops/activation/activation.h"
#include "mudd/ops/activation/reference.h"

using namespace mudd;
using namespace mudd::test;

namespace {

constexpr Activation kAll[] = {Activation::none,     Activation::silu, Activation::gelu_tanh,
                               Activation::gelu_erf, Activation::relu, Activation::squared_relu};

// Calls body with every kind that the op knows and the kernels' two passes for it.
template <class Body>
void for_each_kind(const ActivationKernels& k, Body body) {
  for (Activation a : kAll) {
    CAPTURE(std::string(name_of(a)));
    body(a, k.fwd, k.bwd);
  }
  for (const char* name : kPointwiseNames) {
    CAPTURE(std::string(name));
    body(*find_pointwise(name), k.pointwise_fwd, k.pointwise_bwd);
  }
}

// Largest error over x, in units of max(1, |want|).
template <class Want>
double worst(const std::vector<float>& x, const std::vector<float>& got, Want want) {
  double w = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double v = want(static_cast<double>(x[i]));
    const double e = std::fabs(got[i] - v) / std::fmax(1.0, std::fabs(v));
    w = e <= 1e30 ? std::fmax(w, e) : NAN;
  }
  return w;
}

}  // namespace

TEST_CASE("values and slopes over [-20, 20] stay within the stated error") {
  std::vector<float> x;
  for (int i = -20000; i <= 20000; ++i) x.push_back(static_cast<float>(i) * 1e-3f + 1e-5f);
  const int64_t n = static_cast<int64_t>(x.size());
  const std::vector<float> ones(x.size(), 1.0f);
  for_each_row(activation_rows(), [&](const auto& row) {
    for_each_kind(*row.kernels, [&](auto a, auto fwd, auto bwd) {
      std::vector<float> y(x.size()), slope(x.size());
      fwd(0, 1, n, a, x.data(), n, y.data(), n);
      bwd(0, 1, n, a, x.data(), n, ones.data(), n, slope.data(), n, false);
      CHECK(worst(x, y, [&](double v) { return reference::activate(a, v); }) <= 4e-7);
      CHECK(worst(x, slope, [&](double v) { return reference::activate_slope(a, v); }) <= 4e-7);
    });
  });
}

TEST_CASE("every edge of the lanes, strides, accumulation and in place") {
  for_each_row(activation_rows(), [&](const auto& row) {
    for_each_kind(*row.kernels, [&](auto a, auto fwd, auto bwd) {
      for (int64_t rows : {0, 1, 3})
        for (int64_t cols : {1, 7, 8, 9, 15, 16, 17, 33}) {
          const int64_t stride = cols + 3;
          const auto x = numbers(1, rows * stride), dy = numbers(2, rows * stride);
          std::vector<float> y(x.size(), 7.0f), dx(x.size(), 1.0f), in_place = x, over = dy;
          fwd(0, rows, cols, a, x.data(), stride, y.data(), stride);
          fwd(0, rows, cols, a, in_place.data(), stride, in_place.data(), stride);
          bwd(0, rows, cols, a, x.data(), stride, dy.data(), stride, dx.data(), stride, true);
          bwd(0, rows, cols, a, x.data(), stride, over.data(), stride, over.data(), stride, false);
          for (int64_t i = 0; i < rows * stride; ++i) {
            if (i % stride >= cols) {  // between rows nothing is touched
              CHECK((y[i] == 7.0f && dx[i] == 1.0f && in_place[i] == x[i] && over[i] == dy[i]));
              continue;
            }
            CHECK(std::fabs(y[i] - reference::activate(a, static_cast<double>(x[i]))) <=
                  tolerance("activation.y"));
            CHECK(in_place[i] == y[i]);
            const double want = dy[i] * reference::activate_slope(a, x[i]);
            CHECK(std::fabs(over[i] - want) <= tolerance("activation.y"));
            CHECK(dx[i] == 1.0f + over[i]);
          }
        }
    });
  });
}

TEST_CASE("not a number stays one, infinities do not make one") {
  const float bad = std::numeric_limits<float>::quiet_NaN(), large = 1e4f;
  for_each_row(activation_rows(), [&](const auto& row) {
    for_each_kind(*row.kernels, [&](auto a, auto fwd, auto) {
      const float x[] = {bad, large, -large};
      float y[3];
      fwd(0, 1, 3, a, x, 3, y, 3);
      CHECK(std::isnan(y[0]));
      CHECK(y[1] == static_cast<float>(reference::activate(a, 1e4)));
      CHECK(y[2] == static_cast<float>(reference::activate(a, -1e4)));
    });
  });
}

TEST_CASE("in a worker, what is cut at zero makes a denormal zero") {
  for_each_row(activation_rows(), [&](const auto& row) {
    const float x[] = {1e-40f, -1e-40f, 1e-40f};
    float relu[3], relu6[3], hard_tanh[3];
    parallel_for(1, [&](int64_t, int) {
      row.kernels->fwd(0, 1, 3, Activation::relu, x, 3, relu, 3);
      row.kernels->pointwise_fwd(0, 1, 3, Pointwise::relu6, x, 3, relu6, 3);
      row.kernels->pointwise_fwd(0, 1, 3, Pointwise::hard_tanh, x, 3, hard_tanh, 3);
    });
    for (int i = 0; i < 3; ++i) CHECK((relu[i] == 0 && relu6[i] == 0 && hard_tanh[i] == 0));
  });
}

TEST_CASE("names") {
  for (Activation a : kAll) CHECK(activation_names()[static_cast<size_t>(a)] == name_of(a));
  const auto glu = [](const char* name) {
    Attributes a;
    a.values["activation"] = std::string(name);
    return make_node("glu", a);
  };
  for (const char* name : kPointwiseNames) CHECK_THROWS_AS(glu(name), Error);
  CHECK_FALSE(find_pointwise("silu").has_value());
  CHECK_THROWS_WITH_AS(
      glu("swish"),
      "[glu] activation: expected none, silu, gelu_tanh, gelu_erf, relu or squared_relu, got 'swish'", Error);
}
