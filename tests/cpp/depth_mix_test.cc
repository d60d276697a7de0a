// levels: depth_mix rows and node against the double reference, gradients by complex step, threads and
// micro-batches bit-equal.
#include "mudd/ops/depth_mix/depth_mix.h"

#include <algorithm>
#include <complex>

#include "mudd/base/parallel.h"
#include "mudd/ops/depth_mix/reference.h"
#include "node_runner.h"

using namespace mudd;
using namespace mudd::test;
using C = std::complex<double>;
using Floats = std::vector<float>;

namespace {

struct Case {
  int64_t samples = 2, t = 3, d = 13, hidden = 5;  // hidden 0: the same weights for all tokens
  int streams = 4, sources = 3, gains = 3;
  bool generator_gain = false, newest = false, direct = false, post_norm = false;
  Activation activation = Activation::gelu_tanh;
  DType compute = DType::f32;
  bool narrow_states = false, narrow_newest = false, narrow_streams = false;  // they lie in memory in bf16

  int64_t rows() const { return samples * t; }
  int count() const { return streams * sources; }
};

// As distance, but of numbers around one: a normalised stream of one state has gradients that cancel to nothing.
template <class Got, class Want>
double apart(const Got& got, const Want& want) {
  std::vector<double> g(got.begin(), got.end()), w(want.begin(), want.end());
  g.push_back(1), w.push_back(1);
  return distance(g, w, g.size());
}

// The inputs of the node in its order; absent ones are empty.
std::vector<Floats> inputs(const Case& c) {
  const auto shifted = [](Floats v) {
    for (float& x : v) x += 1.5f;
    return v;
  };
  std::vector<Floats> in(9);
  in[0] = numbers(1, c.count());
  if (c.hidden) in[1] = numbers(2, c.d * c.hidden), in[2] = numbers(3, c.hidden * c.count());
  if (c.generator_gain) in[3] = shifted(numbers(4, c.d));
  for (int g = 0; g < c.gains; ++g) in[4 + g] = shifted(numbers(5 + g, c.d));
  if (c.newest) in[8] = numbers(9, c.rows() * c.d);
  for (int j = 0; j < c.sources; ++j) in.push_back(numbers(10 + j, c.rows() * c.d));
  for (size_t i = 1; c.compute == DType::bf16 && i < in.size(); ++i)
    if (i < 3 || i > 7) in[i] = rounded(in[i]);
  return in;
}

std::vector<std::vector<int64_t>> shapes(const Case& c) {
  const int64_t k = std::max<int64_t>(1, c.hidden);  // absent: any shape that is not empty
  std::vector<std::vector<int64_t>> s{{c.streams, c.sources}, {c.d, k}, {k, c.count()}};
  s.resize(8, {c.d});
  s.resize(9 + c.sources, {c.samples, c.t, c.d});
  return s;
}

template <class N>
reference::DepthMix<N> reference_of(const Case& c, const std::vector<std::vector<N>>& in) {
  reference::DepthMix<N> r;
  r.rows = c.rows(), r.width = c.d, r.hidden = c.hidden, r.streams = c.streams;
  r.direct = c.direct, r.post_norm = c.post_norm, r.activation = c.activation;
  r.bias = in[0], r.w1 = in[1], r.w2 = in[2], r.generator_gain = in[3], r.newest = in[8];
  r.gains.assign(in.begin() + 4, in.begin() + 4 + c.gains);
  r.states.assign(in.begin() + 9, in.end());
  return r;
}

std::vector<Floats> stream_gradients(const Case& c) {
  std::vector<Floats> dy;
  for (int s = 0; s < c.streams; ++s) dy.push_back(numbers(40 + s, c.rows() * c.d));
  return dy;
}

// d(sum of dy y over streams)/d(input of) by the complex step on the reference.
std::vector<double> gradient(const Case& c, const std::vector<Floats>& dy, size_t of) {
  const double h = 1e-30;
  std::vector<std::vector<C>> in;
  for (const Floats& v : inputs(c)) in.emplace_back(v.begin(), v.end());
  std::vector<double> g(in[of].size());
  for (size_t i = 0; i < g.size(); ++i) {
    in[of][i] += C(0, h);
    const auto y = reference_of(c, in).run();
    in[of][i] -= C(0, h);
    for (size_t s = 0; s < y.size(); ++s)
      for (size_t j = 0; j < y[s].size(); ++j) g[i] += dy[s][j] * y[s][j].imag() / h;
  }
  return g;
}

NodeRunner runner(const Case& c, int shards = 2, int64_t padding = 3) {
  Attributes a;
  a.values["direct"] = c.direct;
  a.values["post_norm"] = c.post_norm;
  a.values["activation"] = std::string(name_of(c.activation));
  std::vector<NodeRunner::Input> values;
  const auto in = inputs(c);
  const auto shape = shapes(c);
  for (size_t i = 0; i < in.size(); ++i)
    values.push_back({shape[i], in[i], true, i == 8 ? c.narrow_newest : i > 8 && c.narrow_states});
  return {"depth_mix", a, values, Shards::cut(c.samples, shards), padding, {c.compute, !c.narrow_streams}};
}

void check_case(const Case& c) {
  std::vector<std::vector<double>> wide;
  for (const Floats& v : inputs(c)) wide.push_back(widen(v));
  const auto want = reference_of(c, wide).run();
  NodeRunner run = runner(c);
  for (int s = 0; s < c.streams; ++s) {
    const Floats y = run.forward(s);
    CHECK(distance(y, want[s], y.size()) <= tolerance(64));
  }
  const auto dy = stream_gradients(c);
  const auto got = run.backward_all(dy);
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i].empty()) continue;
    CAPTURE(i);
    CHECK(apart(got[i], gradient(c, dy, i)) <= tolerance(256));
  }
}

// Streams and gradients of a run in bf16, what lies in bf16 in either case rounded.
std::vector<Floats> everything_bf16(Case c, bool narrow, int64_t padding = 3) {
  const Case stored = c;
  c.compute = DType::bf16;
  if (!narrow) c.narrow_states = c.narrow_newest = c.narrow_streams = false;
  NodeRunner run = runner(c, 2, padding);
  std::vector<Floats> out;
  for (int s = 0; s < c.streams; ++s) {
    out.push_back(run.forward(s));
    if (stored.narrow_streams && s < c.streams - 1) out.back() = rounded(out.back());
  }
  auto dy = stream_gradients(c);
  for (Floats& g : dy) g = rounded(g);
  const auto got = run.backward_all(dy);
  for (size_t i = 0; i < got.size(); ++i)
    out.push_back((i == 8 ? stored.narrow_newest : i > 8 && stored.narrow_states) ? rounded(got[i]) : got[i]);
  return out;
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
  for (int s = 0; s < c.streams; ++s) CHECK(apart(y[s], want[s]) <= tolerance(64));
  for (float& v : dx[0]) v -= 0.5f;  // it was added to
  for (int j = 0; j < c.sources; ++j) CHECK(apart(dx[j], gradient(c, dy, 9 + j)) <= tolerance(256));
  for (int g = 0; g < c.gains; ++g) CHECK(apart(dgain[g], gradient(c, dy, 4 + g)) <= tolerance(256));
  if (c.direct) CHECK(apart(ddirect, gradient(c, dy, 8)) <= tolerance(256));
  std::vector<double> dbias(c.count());
  for (int64_t i = 0; i < c.rows() * c.count(); ++i) dbias[i % c.count()] += dweights[i];
  CHECK(apart(dbias, gradient(c, dy, 0)) <= tolerance(256));
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

TEST_CASE("the same bits for any thread count and stride") {
  const Case c{.samples = 4, .t = 50, .d = 40, .hidden = 24, .generator_gain = true};
  const auto dy = stream_gradients(c);
  std::vector<Floats> first;
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    NodeRunner run = runner(c, 4, threads);
    std::vector<Floats> got;
    for (int s = 0; s < c.streams; ++s) got.push_back(run.forward(s));
    for (Floats& g : run.backward_all(dy)) got.push_back(g);
    if (first.empty()) first = got;
    CHECK(got == first);
  }
  set_num_threads(0);
}

TEST_CASE("bf16: near the reference of rounded operands; memory in bf16 gives the bits of fp32 rounded once") {
  const auto check = [](const Case& c) {
    const auto want = everything_bf16(c, false);
    for (int threads : {1, 3}) {
      set_num_threads(threads);
      CHECK(everything_bf16(c, true, threads) == want);
    }
    set_num_threads(0);
    if (c.rows() > 40) return;  // a row whose mixture nearly cancels is divided by a small norm: errors grow
    Case rounds = c;
    rounds.compute = DType::bf16;
    std::vector<std::vector<double>> wide;
    for (const Floats& v : inputs(rounds)) wide.push_back(widen(v));
    const auto y = reference_of(rounds, wide).run();
    // Roundings of u, of act(u w1) and of the stream: entries of A are sums of some numbers of size one.
    for (int s = 0; s < c.streams; ++s) CHECK(apart(want[s], y[s]) <= bf16_tolerance(4));
    auto dy = stream_gradients(c);
    for (Floats& g : dy) g = rounded(g);
    for (size_t i = 0; i < wide.size(); ++i) {
      const Floats& got = want[static_cast<size_t>(c.streams) + i];
      if (got.empty()) continue;
      CAPTURE(i);
      CHECK(apart(got, gradient(rounds, dy, i)) <= bf16_tolerance(16));
    }
  };
  check({.narrow_streams = true});
  check(
      {.samples = 1, .t = 1, .d = 1, .hidden = 1, .streams = 1, .sources = 1, .gains = 0, .narrow_states = true});
  check({.generator_gain = true, .newest = true, .narrow_states = true, .narrow_streams = true});
  check({.generator_gain = true, .newest = true, .narrow_newest = true, .narrow_streams = true});
  check({.gains = 4,
         .generator_gain = true,
         .newest = true,
         .direct = true,
         .post_norm = true,
         .narrow_states = true,
         .narrow_streams = true});
  check({.gains = 4, .direct = true, .post_norm = true, .narrow_states = true});
  check({.hidden = 0, .streams = 2, .gains = 0, .direct = true, .narrow_states = true, .narrow_streams = true});
  check({.samples = 2, .t = 75, .d = 40, .hidden = 24, .narrow_states = true, .narrow_streams = true});
}

TEST_CASE("two runs of half the shards add up to the bits of one run") {
  const Case whole{.samples = 4, .t = 33, .d = 24, .hidden = 16};
  const auto dy = stream_gradients(whole);
  NodeRunner all = runner(whole, 4);
  all.forward();
  const auto want = all.backward_all(dy);
  const auto in = inputs(whole);
  std::vector<Floats> sum(in.size());
  for (int half = 0; half < 2; ++half) {
    const auto part = [&](const Floats& v) {
      const auto middle = static_cast<std::ptrdiff_t>(v.size() / 2);
      return half ? Floats(v.begin() + middle, v.end()) : Floats(v.begin(), v.begin() + middle);
    };
    std::vector<NodeRunner::Input> values;
    const auto shape = shapes({.samples = 2, .t = whole.t, .d = whole.d, .hidden = whole.hidden});
    for (size_t i = 0; i < in.size(); ++i) values.push_back({shape[i], i < 9 ? in[i] : part(in[i]), true});
    NodeRunner run("depth_mix", Attributes{}, values, Shards::cut(2, 2));
    run.forward();
    std::vector<Floats> d;
    for (const Floats& v : dy) d.push_back(part(v));
    const auto got = run.backward_all(d, sum);
    for (size_t i = 0; i < 8; ++i) sum[i] = got[i];
    for (size_t i = 9; i < got.size(); ++i) CHECK(got[i] == part(want[i]));
  }
  for (size_t i = 0; i < 8; ++i) CHECK(sum[i] == want[i]);
}
