// levels: depth_mix rows and node against the double reference, gradients by complex step.
#include "mudd/ops/depth_mix/depth_mix.h"
#include "depth_mix_runner.h"
#include "mudd/ops/depth_mix/reference.h"

using namespace mudd;
using namespace mudd::test;
using namespace mudd::test::depth_mix;

namespace {

void check_case(const Case& c) {
  std::vector<std::vector<double>> wide;
  for (const Floats& v : inputs(c)) wide.push_back(widen(v));
  const auto want = reference_of(c, wide).run();
  NodeRunner run = runner(c);
  for (int s = 0; s < c.streams; ++s) {
    const Floats y = run.forward(s);
    CHECK(distance(y, want[s], y.size()) <= tolerance("depth_mix.y"));
  }
  const auto dy = stream_gradients(c);
  const auto got = run.backward_all(dy);
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i].empty()) continue;
    CAPTURE(i);
    CHECK(apart(got[i], gradient(c, dy, i)) <= tolerance("depth_mix.gradients"));
  }
}

// Kernel rows on one set of weights for all tokens.
void check_row(const DepthMixKernels& kernels, const Case& c) {
  auto in = inputs(c);
  const int64_t n = c.rows() * c.d;
  std::vector<Floats> y(c.streams, Floats(n)), dx(c.sources, Floats(n, 0.5f)), dgain(c.gains, Floats(c.d, 9.0f));
  std::vector<const float*> states;
  std::vector<float*> gradients;
  std::vector<int64_t> strides(c.sources, c.d);
  std::vector<uint8_t> accumulate(c.sources, 0);
  for (int j = 0; j < c.sources; ++j) states.push_back(in[9 + j].data()), gradients.push_back(dx[j].data());
  accumulate[0] = 1;
  Floats inverse(c.rows() * c.gains + 1), dweights(c.rows() * c.count()), scratch(c.streams * c.d);
  DepthMixRows m{.width = c.d, .streams = c.streams, .sources = c.sources, .normed = c.gains};
  m.post_norm = c.post_norm;
  m.states = states.data(), m.state_strides = strides.data();
  if (c.direct) m.direct = in[8].data(), m.direct_stride = c.d;
  m.weights = in[0].data();
  for (int g = 0; g < c.gains; ++g) m.gains[g] = in[4 + g].data();
  m.eps = 1e-6f;
  m.inverse = inverse.data();
  DepthMixOutputs out;
  const auto dy = stream_gradients(c);
  DepthMixGradients grads;
  for (int s = 0; s < c.streams; ++s) {
    out.streams[s] = y[s].data(), out.strides[s] = c.d;
    grads.streams[s] = dy[s].data(), grads.strides[s] = c.d;
  }
  for (int g = 0; g < c.gains; ++g) grads.gains[g] = dgain[g].data();
  Floats ddirect(n, 7.0f);
  grads.states = gradients.data(), grads.state_strides = strides.data(), grads.accumulate = accumulate.data();
  if (c.direct) grads.direct = ddirect.data(), grads.direct_stride = c.d;
  grads.weights = dweights.data();
  kernels.fwd(0, c.rows(), m, out);
  kernels.bwd(0, c.rows(), m, grads, scratch.data());
  std::vector<std::vector<double>> wide;
  for (const Floats& v : in) wide.push_back(widen(v));
  const auto want = reference_of(c, wide).run();
  for (int s = 0; s < c.streams; ++s) CHECK(apart(y[s], want[s]) <= tolerance("depth_mix.y"));
  for (float& v : dx[0]) v -= 0.5f;  // it was added to
  for (int j = 0; j < c.sources; ++j)
    CHECK(apart(dx[j], gradient(c, dy, 9 + j)) <= tolerance("depth_mix.gradients"));
  for (int g = 0; g < c.gains; ++g)
    CHECK(apart(dgain[g], gradient(c, dy, 4 + g)) <= tolerance("depth_mix.gradients"));
  if (c.direct) CHECK(apart(ddirect, gradient(c, dy, 8)) <= tolerance("depth_mix.gradients"));
  std::vector<double> dbias(c.count());
  for (int64_t i = 0; i < c.rows() * c.count(); ++i) dbias[i % c.count()] += dweights[i];
  CHECK(apart(dbias, gradient(c, dy, 0)) <= tolerance("depth_mix.gradients"));
}

}  // namespace

TEST_CASE("depth_mix rows equal the reference on every edge of the lanes") {
  for_each_row(depth_mix_rows(), [](const auto& row) {
    for (int64_t d : {1, 7, 8, 9, 16, 17, 31, 33}) {
      CAPTURE(d);
      Case c{.samples = 1, .t = 2, .d = d, .hidden = 0};
      check_row(*row.kernels, c);
      c.streams = c.gains = 1, c.sources = 1;
      check_row(*row.kernels, c);
      c = {.samples = 1, .t = 2, .d = d, .hidden = 0, .streams = 3, .sources = 2, .gains = 0, .newest = true};
      c.direct = true;
      check_row(*row.kernels, c);
      c.streams = 2, c.gains = 2, c.post_norm = true;
      check_row(*row.kernels, c);
    }
  });
}

TEST_CASE("depth_mix generator rows: activation, its slope and the scaled gradient") {
  for_each_row(depth_mix_rows(), [](const auto& row) {
    for (int64_t k : {1, 8, 15, 17}) {
      const int64_t rows = 4, begin = 1, end = 3;
      const Floats pre = numbers(1, rows * k), scale = numbers(2, rows), given = numbers(3, (end - begin) * k);
      Floats dh = given, hidden(pre.size(), 5.0f), scaled(pre.size(), 5.0f);
      row.kernels->generator(begin, end, k, Activation::gelu_erf, pre.data(), scale.data(), dh.data(),
                             hidden.data(), scaled.data());
      for (int64_t i = 0; i < rows * k; ++i) {
        const int64_t r = i / k;
        if (r < begin || r >= end) {
          CHECK(hidden[i] == 5.0f);
          continue;
        }
        const double g = given[i - begin * k] * reference::activate_slope(Activation::gelu_erf, pre[i]);
        CHECK(dh[i - begin * k] == doctest::Approx(g).epsilon(1e-5));
        CHECK(scaled[i] == doctest::Approx(g * scale[r]).epsilon(1e-5));
        CHECK(hidden[i] ==
              doctest::Approx(reference::activate(Activation::gelu_erf, double{pre[i]})).epsilon(1e-5));
      }
    }
  });
}

TEST_CASE("the node equals the reference in every form") {
  check_case({});
  check_case({.samples = 1, .t = 1, .d = 1, .hidden = 1, .streams = 1, .sources = 1, .gains = 0});
  check_case({.generator_gain = true, .newest = true});
  check_case(
      {.streams = 4, .gains = 4, .generator_gain = true, .newest = true, .direct = true, .post_norm = true});
  check_case({.streams = 4, .gains = 4, .direct = true, .post_norm = true, .activation = Activation::gelu_erf});
  check_case({.streams = 1, .sources = 5, .gains = 1});
  check_case({.hidden = 0, .streams = 2, .gains = 0, .direct = true});
}
