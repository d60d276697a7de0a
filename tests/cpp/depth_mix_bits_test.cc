// levels, units: depth_mix gives the same bits with any threads and strides, micro-batches, and memory in bf16.
#include "depth_mix_runner.h"
#include "mudd/base/parallel.h"

using namespace mudd;
using namespace mudd::test;
using namespace mudd::test::depth_mix;

namespace {

// Return streams and gradients of a bf16 run; values that are bf16 in only one variant are rounded.
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

}  // namespace

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
    for (int s = 0; s < c.streams; ++s) CHECK(apart(want[s], y[s]) <= tolerance("depth_mix.bf16_y"));
    auto dy = stream_gradients(c);
    for (Floats& g : dy) g = rounded(g);
    for (size_t i = 0; i < wide.size(); ++i) {
      const Floats& got = want[static_cast<size_t>(c.streams) + i];
      if (got.empty()) continue;
      CAPTURE(i);
      CHECK(apart(got, gradient(rounds, dy, i)) <= tolerance("depth_mix.bf16_gradients"));
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
