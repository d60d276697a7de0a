// levels, units: the attention node: strides, threads, accumulation, and decoding with a cache bit-equal to the
// full pass.
#include <algorithm>

#include "compare.h"
#include "head_node.h"
#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/ops/attention/reference.h"
#include "node_runner.h"

using namespace mudd;
using namespace mudd::test;

namespace {

constexpr int64_t kBatch = 2, kHeads = 4, kGroups = 2, kDim = 12;

OptionValues options() { return {{"n_head", kHeads}, {"n_kv_head", kGroups}}; }

struct Data {
  std::vector<float> q, k, v, dout;

  explicit Data(int64_t time)
      : q(numbers(1, kBatch * time * kHeads * kDim)),
        k(numbers(2, kBatch * time * kGroups * kDim)),
        v(numbers(3, k.size())),
        dout(numbers(4, q.size())) {}
  std::vector<Value> values(int64_t time, int64_t gap) const {
    return {Value({kBatch, time, kHeads * kDim}, q, gap), Value({kBatch, time, kGroups * kDim}, k, gap),
            Value({kBatch, time, kGroups * kDim}, v, gap)};
  }
};

// The rows [begin, end) of every sample of x [B, time, width].
std::vector<float> rows_of(const std::vector<float>& x, int64_t time, int64_t begin, int64_t end) {
  const int64_t width = static_cast<int64_t>(x.size()) / (kBatch * time);
  std::vector<float> part;
  for (int64_t b = 0; b < kBatch; ++b)
    part.insert(part.end(), x.begin() + (b * time + begin) * width, x.begin() + (b * time + end) * width);
  return part;
}

OptionValues windowed(int64_t window) {
  auto given = options();
  given["window"] = window;
  return given;
}

// Output of feeding the rows in pieces of the given sizes through one cache.
std::vector<float> decoded(const Data& data, int64_t time, const std::vector<int64_t>& pieces,
                           const Value& key_mask, int64_t window = 0) {
  const int64_t room = time + 3, size = kBatch * kGroups * room * kDim;
  Value k_cache({kBatch, kGroups, room, kDim}, std::vector<float>(static_cast<size_t>(size), kPoison));
  Value v_cache = k_cache;
  std::vector<float> all(data.q.size());
  int64_t done = 0;
  for (const int64_t n : pieces) {
    HeadNode node("attention", windowed(window),
                  {Value({kBatch, n, kHeads * kDim}, rows_of(data.q, time, done, done + n)),
                   Value({kBatch, n, kGroups * kDim}, rows_of(data.k, time, done, done + n)),
                   Value({kBatch, n, kGroups * kDim}, rows_of(data.v, time, done, done + n)), Value(), key_mask,
                   k_cache, v_cache},
                  false);
    const auto o = node.forward(done);
    k_cache = node.input(5), v_cache = node.input(6);
    const int64_t width = kHeads * kDim;
    for (int64_t b = 0; b < kBatch; ++b)
      std::copy_n(o.begin() + b * n * width, n * width, all.begin() + (b * time + done) * width);
    done += n;
  }
  REQUIRE(done == time);
  return all;
}

}  // namespace

TEST_CASE("attention node: slices of slabs, four axes, threads and accumulation") {
  const int64_t time = 300;  // more than one chunk of the backward
  const Data data(time);
  HeadNode node("attention", options(), data.values(time, 9));
  const auto o = node.forward();
  const auto grads = node.backward(data.dout, 3, false);
  HeadNode axes("attention", {},
                {Value({kBatch, time, kHeads, kDim}, data.q, 2), Value({kBatch, time, kGroups, kDim}, data.k, 1),
                 Value({kBatch, time, kGroups, kDim}, data.v, 0)});
  CHECK(axes.forward() == o);
  CHECK(axes.backward(data.dout, 3, false) == grads);
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    HeadNode other("attention", options(), data.values(time, 0));
    set_num_threads(4 - threads);  // the count may change after scratch was booked
    CHECK(other.forward() == o);
    CHECK(other.backward(data.dout, 3, false) == grads);
    const auto added = other.backward(data.dout, 3, true, 0.5f);
    for (int i = 0; i < 3; ++i) {
      auto want = widen(grads[i]);
      for (double& w : want) w += 0.5;
      CHECK(distance(added[i], want, want.size()) <= tolerance("attention.added"));
    }
  }
  set_num_threads(0);
}

TEST_CASE("attention node equals the reference: grouped heads, given scale, segments and hidden keys per sample") {
  const int64_t time = 90;
  const Data data(time);
  std::vector<int32_t> segments, mask;
  for (int64_t i = 0; i < kBatch * time; ++i) {
    segments.push_back(static_cast<int32_t>(i < time ? i / 40 : i % time / 25));
    mask.push_back(i % 7 != 3 && i != time);
  }
  reference::AttentionCase c;
  c.batch = kBatch, c.time = time, c.heads = kHeads, c.kv_heads = kGroups, c.dim = kDim, c.scale = 0.7;
  c.segments = segments.data(), c.key_mask = mask.data();
  for (const bool causal : {true, false}) {
    c.causal = causal;
    auto inputs = data.values(time, 0);
    inputs.push_back(Value({kBatch, time}, segments));
    inputs.push_back(Value({kBatch, time}, mask));
    auto given = options();
    given["scale"] = 0.7, given["causal"] = causal;
    const auto o = HeadNode("attention", given, inputs).forward();
    std::vector<double> want(o.size());
    reference::attention<double>(c, widen(data.q).data(), widen(data.k).data(), widen(data.v).data(), want.data(),
                                 nullptr);
    CHECK(distance(o, want, o.size()) <= tolerance("attention.sums"));
  }
}

TEST_CASE(
    "a ring of rows: each token sees the last Tmax ones, with the bits of a full pass where they lie in order") {
  const int64_t time = 50, room = 16, width = kHeads * kDim;
  const Data data(time);
  const int64_t size = kBatch * kGroups * room * kDim;
  Value k_cache({kBatch, kGroups, room, kDim}, std::vector<float>(static_cast<size_t>(size), kPoison));
  Value v_cache = k_cache;
  auto ring = options();
  ring["ring"] = true;
  for (int64_t done = 0; done < time; ++done) {
    const auto values = [&](const Data& d, int64_t begin, int64_t n) {
      return std::vector<Value>{Value({kBatch, n, width}, rows_of(d.q, time, begin, begin + n)),
                                Value({kBatch, n, kGroups * kDim}, rows_of(d.k, time, begin, begin + n)),
                                Value({kBatch, n, kGroups * kDim}, rows_of(d.v, time, begin, begin + n))};
    };
    auto one = values(data, done, 1);
    one.insert(one.end(), {Value(), Value(), k_cache, v_cache});
    HeadNode node("attention", ring, one, false);
    const auto o = node.forward(done);
    k_cache = node.input(5), v_cache = node.input(6);
    const int64_t first = std::max<int64_t>(0, done + 1 - room), n = done + 1 - first;
    HeadNode full("attention", options(), values(data, first, n));
    const auto all = full.forward();
    for (int64_t b = 0; b < kBatch; ++b)
      for (int64_t i = 0; i < width; ++i) {
        const float got = o[static_cast<size_t>(b * width + i)];
        const float want = all[static_cast<size_t>((b * n + n - 1) * width + i)];
        if (done < room || (done + 1) % room == 0) CHECK(got == want);
        CHECK(std::fabs(got - want) <= tolerance("attention.sums"));
      }
  }
  auto two = data.values(time, 0);
  two.insert(two.end(), {Value(), Value(), k_cache, v_cache});
  CHECK_THROWS_AS(HeadNode("attention", ring, two, false).forward(0), Error);  // more rows than the ring has
}

TEST_CASE("a window over several chunks of backward: the reference, any threads, chunks that are left out") {
  const int64_t time = 900;
  const Data data(time);
  for (const int64_t window : {1, 40, 289, 600}) {
    HeadNode node("attention", windowed(window), data.values(time, 3));
    const auto o = node.forward();
    const auto grads = node.backward(data.dout, 3, false);
    reference::AttentionCase c;
    c.batch = kBatch, c.time = time, c.heads = kHeads, c.kv_heads = kGroups, c.dim = kDim;
    c.scale = 1 / std::sqrt(double(kDim)), c.window = window;
    std::vector<double> want(o.size());
    reference::attention<double>(c, widen(data.q).data(), widen(data.k).data(), widen(data.v).data(), want.data(),
                                 nullptr);
    CHECK(distance(o, want, o.size()) <= tolerance("attention.sums"));
    for (const int threads : {1, 2, 3}) {
      set_num_threads(threads);
      HeadNode other("attention", windowed(window), data.values(time, 0));
      CHECK(other.forward() == o);
      CHECK(other.backward(data.dout, 3, false) == grads);
    }
    set_num_threads(0);
    // A change beyond the window changes neither the row's output nor, through it, a gradient.
    Data moved = data;
    const int64_t at = 100 * kGroups * kDim;  // key 100 of sample 0
    moved.k[static_cast<size_t>(at)] += 1, moved.v[static_cast<size_t>(at)] += 1;
    HeadNode changed("attention", windowed(window), moved.values(time, 0));
    const auto p = changed.forward();
    const auto more = changed.backward(data.dout, 3, false);
    for (int64_t t = 0; t < time; ++t) {
      const auto row = [&](const std::vector<float>& x) { return rows_of(x, time, t, t + 1); };
      const bool sees = t >= 100 && t - 100 < window;
      CHECK((row(p) == row(o)) != sees);
      if (window > 1) CHECK((row(more[0]) == row(grads[0])) != sees);
    }
  }
  HeadNode all("attention", windowed(time), data.values(time, 0));
  HeadNode none("attention", options(), data.values(time, 0));
  CHECK(all.forward() == none.forward());
  CHECK(all.backward(data.dout, 3, false) == none.backward(data.dout, 3, false));
}

TEST_CASE("decoding keeps the window: the bits of the full pass, and in a ring the last tokens alone") {
  const int64_t time = 150, width = kHeads * kDim;
  const Data data(time);
  for (const int64_t window : {1, 9, 64, 100}) {
    const auto o = HeadNode("attention", windowed(window), data.values(time, 0)).forward();
    CHECK(decoded(data, time, std::vector<int64_t>(time, 1), {}, window) == o);
    CHECK(decoded(data, time, {63, 2, 1, 70, 14}, {}, window) == o);
    CHECK(decoded(data, time, {1, 100, 49}, {}, window) == o);
  }
  const int64_t room = 40, window = 9, size = kBatch * kGroups * room * kDim;
  const auto o = HeadNode("attention", windowed(window), data.values(time, 0)).forward();
  Value k_cache({kBatch, kGroups, room, kDim}, std::vector<float>(static_cast<size_t>(size), 0.0f));
  Value v_cache = k_cache;
  auto ring = windowed(window);
  ring["ring"] = true;
  for (int64_t done = 0; done < time; ++done) {
    HeadNode node("attention", ring,
                  {Value({kBatch, 1, width}, rows_of(data.q, time, done, done + 1)),
                   Value({kBatch, 1, kGroups * kDim}, rows_of(data.k, time, done, done + 1)),
                   Value({kBatch, 1, kGroups * kDim}, rows_of(data.v, time, done, done + 1)), Value(), Value(),
                   k_cache, v_cache},
                  false);
    const auto got = node.forward(done), want = rows_of(o, time, done, done + 1);
    k_cache = node.input(5), v_cache = node.input(6);
    CHECK(distance(got, widen(want), got.size()) <= tolerance("attention.sums"));
  }
}

TEST_CASE("decoding through a cache gives the bits of the full pass, however the rows come") {
  for (const bool masked : {false, true}) {
    const int64_t time = 150;
    const Data data(time);
    std::vector<int32_t> mask, slots;
    for (int64_t b = 0; b < kBatch; ++b)
      for (int64_t t = 0; t < time + 3; ++t) {
        const int32_t on = t % 64 != 5 && (b == 0 || t > 1);  // sample 1 starts with rows that see no key
        if (t < time) mask.push_back(on);
        slots.push_back(on);
      }
    auto inputs = data.values(time, 0);
    inputs.emplace_back();
    if (masked) inputs.emplace_back(std::vector<int64_t>{kBatch, time}, mask);
    HeadNode full("attention", options(), inputs);
    const auto o = full.forward();
    const Value cache_mask = masked ? Value({kBatch, time + 3}, slots) : Value();
    CHECK(decoded(data, time, std::vector<int64_t>(time, 1), cache_mask) == o);
    CHECK(decoded(data, time, {63, 2, 1, 70, 14}, cache_mask) == o);
    CHECK(decoded(data, time, {150}, cache_mask) == o);
    CHECK(decoded(data, time, {1, 100, 49}, cache_mask) == o);
  }
}

TEST_CASE("a longer or padded call does not change the bits of a row") {
  const Data data(200);
  HeadNode full("attention", options(), data.values(200, 0));
  const auto o = full.forward();
  for (int64_t time : {1, 7, 64, 65, 130}) {
    const std::vector<Value> head = {Value({kBatch, time, kHeads * kDim}, rows_of(data.q, 200, 0, time)),
                                     Value({kBatch, time, kGroups * kDim}, rows_of(data.k, 200, 0, time)),
                                     Value({kBatch, time, kGroups * kDim}, rows_of(data.v, 200, 0, time))};
    CHECK(HeadNode("attention", options(), head).forward() == rows_of(o, 200, 0, time));
  }
}

TEST_CASE("bf16: the attention node near its fp32 results, the same bits for any threads") {
  const int64_t time = 300;
  const Data data(time);
  Attributes a;
  a.values = options();
  const auto all = [&](NodeRunner::Types types, int64_t padding) {
    const bool narrow = !types.wide_outputs;
    NodeRunner run("attention", a,
                   {{{kBatch, time, kHeads * kDim}, rounded(data.q), true, narrow},
                    {{kBatch, time, kGroups * kDim}, rounded(data.k), true, narrow},
                    {{kBatch, time, kGroups * kDim}, rounded(data.v), true, narrow}},
                   Shards::cut(kBatch, 2), padding, types);
    std::vector<std::vector<float>> out{run.forward()};
    for (auto& g : run.backward(rounded(data.dout))) out.push_back(g);
    return out;
  };
  const auto fp32 = all({DType::f32, true}, 0), got = all({DType::bf16, false}, 0);
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(distance(got[i], widen(fp32[i]), got[i].size()) <= tolerance("attention.bf16"));
  CHECK(rounded(all({DType::bf16, true}, 1)[0]) == got[0]);
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    CHECK(all({DType::bf16, false}, threads) == got);
  }
  set_num_threads(0);
}

TEST_CASE("attention refuses shapes that do not fit") {
  const Data data(4);
  auto bad = data.values(4, 0);
  CHECK_THROWS_AS(HeadNode("attention", {{"n_head", int64_t{5}}}, bad), Error);
  CHECK_THROWS_AS(HeadNode("attention", {{"n_head", kHeads}}, bad), Error);  // k is narrower: n_kv_head missing
  bad[2] = Value({kBatch, 3, kGroups * kDim}, numbers(1, kBatch * 3 * kGroups * kDim));
  CHECK_THROWS_AS(HeadNode("attention", options(), bad), Error);
  HeadNode empty("attention", options(),
                 {Value({kBatch, 0, kHeads * kDim}, std::vector<float>{}),
                  Value({kBatch, 0, kGroups * kDim}, std::vector<float>{}),
                  Value({kBatch, 0, kGroups * kDim}, std::vector<float>{})});
  CHECK(empty.forward().empty());
  Value cache({kBatch, kGroups, 4, kDim}, numbers(5, kBatch * kGroups * 4 * kDim));
  auto full = data.values(4, 0);
  full.insert(full.end(), {Value(), Value(), cache, cache});
  HeadNode node("attention", options(), full, false);
  CHECK_THROWS_AS(node.forward(1), Error);
  full.pop_back();
  CHECK_THROWS_AS(HeadNode("attention", options(), full, false), Error);  // v_cache is missing
}
