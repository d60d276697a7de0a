// Lifetimes and offsets: buffers alive at the same time never share bytes; switches never change numbers.
#include <algorithm>
#include <cstring>

#include "compare.h"
#include "mudd/base/check.h"
#include "mudd/graph/executor.h"
#include "mudd/graph/free_space.h"

using namespace mudd;
using namespace mudd::test;

namespace {

bool overlap(const Buffer& a, const Buffer& b) {
  const bool together = a.first <= b.last && b.first <= a.last;
  const bool share = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
  return a.bytes > 0 && b.bytes > 0 && together && share;
}

void check_disjoint(const std::vector<Buffer>& buffers, int64_t arena) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    CHECK(buffers[i].offset >= 0);
    CHECK(buffers[i].offset + buffers[i].bytes <= arena);
    for (size_t j = 0; j < i; ++j) CHECK_FALSE(overlap(buffers[i], buffers[j]));
  }
}

// Three residual blocks of norm, gate and add over x f32[B, 5, 8]; the sum of the last value is the loss by its
// gradient of ones, made by the executor's rule that a missing dout means zero: so end in a node that starts.
struct Start : Node {  // dx = 1 for every element: what a loss does
  const char* op() const override { return "start"; }
  void infer(Inference& io) override { io.output({{1}, DType::f64}); }
  void forward(const Run& run) override {
    double sum = 0;
    for (int64_t r = 0; r < run.in(0).rows; ++r)
      for (int64_t c = 0; c < run.in(0).cols; ++c) sum += run.in(0).f32()[r * run.in(0).stride + c];
    *static_cast<double*>(run.out(0).data) = sum;
  }
  void backward(const Run& run) override {
    const Tensor& d = run.din(0);
    for (int64_t r = 0; r < d.rows; ++r) std::fill_n(d.f32() + r * d.stride, d.cols, 1.0f);
  }
};

struct Built {
  Graph graph;
  ValueId loss;
};

Built build(ParamStore& store, int64_t samples, int shards) {
  Graph g(true, Shards::cut(samples, shards));
  Attributes none;
  const ValueId x = g.input("x", {{samples, 5, 8}, DType::f32});
  ValueId h = x;
  for (int layer = 0; layer < 3; ++layer) {
    const ValueId gain = g.parameter(store.parameters().at(layer).name, {{8}, DType::f32}, layer, true);
    const ValueId n = g.apply("rms_norm", none, {h, gain}, "block")[0];
    const ValueId u = g.apply("glu", none, {n, n}, "block")[0];
    h = g.apply("add", none, {h, u}, "block")[0];
  }
  const ValueId loss = g.apply(std::make_unique<Start>(), {h}, "end")[0];
  return {std::move(g), loss};
}

ParamStore make_store() {
  ParamStore store;
  for (int i = 0; i < 3; ++i)
    store.parameters().declare(
        {.name = "gain" + std::to_string(i), .shape = {8}, .role = Role::gain, .fan_in = 8, .fan_out = 8});
  store.allocate();
  for (int i = 0; i < 3; ++i)
    for (int k = 0; k < 8; ++k) store.planes().master(i)[k] = 1.0f + 0.1f * number(9, 8 * i + k);
  return store;
}

// All gradients of one step of `samples` samples in `runs` runs.
std::vector<float> gradients(int64_t samples, int runs, int shards_per_run, ExecutorOptions options) {
  ParamStore store = make_store();
  const int64_t per_run = samples / runs;
  Built b = build(store, per_run, shards_per_run);
  options.runs_per_step = runs;
  Executor e(std::move(b.graph), store, {b.loss}, {b.loss}, options);
  check_disjoint(e.plan().buffers, e.plan().arena_bytes);
  const auto x = numbers(4, samples * 40);
  for (int r = 0; r < runs; ++r) {
    std::memcpy(e.value(e.input("x")).data, x.data() + r * per_run * 40, per_run * 160);
    e.run({}, r);
  }
  std::vector<float> all;
  for (int i = 0; i < 3; ++i) {
    REQUIRE(e.gradients().uses(i) == 1);
    all.insert(all.end(), e.gradients().whole(i, 0), e.gradients().whole(i, 0) + 8);
  }
  return all;
}

}  // namespace

TEST_CASE("random lifetimes never overlap, and reuse saves memory") {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    std::vector<Buffer> buffers;
    int64_t total = 0;
    for (int i = 0; i < 60; ++i) {
      const int first = static_cast<int>((number(seed, 3 * i) + 1) * 20);
      const int last = first + static_cast<int>((number(seed, 3 * i + 1) + 1) * 5);
      buffers.push_back({.bytes = 64 * static_cast<int64_t>((number(seed, 3 * i + 2) + 1) * 50),
                         .first = first,
                         .last = last,
                         .what = "",
                         .kind = BufferKind::result});
      total += buffers.back().bytes;
    }
    auto apart = buffers;
    const int64_t arena = assign_offsets(buffers, {});
    check_disjoint(buffers, arena);
    CHECK(arena < total / 2);
    CHECK(assign_offsets(apart, {.reuse = false}) == total);
  }
}

TEST_CASE("every buffer has the lowest offset that is free while it is alive, the largest buffers first") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::vector<Buffer> buffers;
    for (int i = 0; i < 120; ++i) {
      const int first = static_cast<int>((number(seed, 3 * i) + 1) * 20);
      const int last = first + static_cast<int>((number(seed, 3 * i + 1) + 1) * (i % 3 ? 3 : 25));
      const auto bytes = static_cast<int64_t>((number(seed, 3 * i + 2) + 1) * 6);  // 0: a buffer without bytes
      buffers.push_back(
          {.bytes = 64 * bytes, .first = first, .last = last, .what = "", .kind = BufferKind::result});
    }
    assign_offsets(buffers, {});
    std::stable_sort(buffers.begin(), buffers.end(),
                     [](const Buffer& a, const Buffer& b) { return a.bytes > b.bytes; });
    for (size_t i = 0; i < buffers.size(); ++i) {
      Buffer lowest = buffers[i];
      const auto taken = [&](const Buffer& placed) { return overlap(lowest, placed); };
      for (lowest.offset = 0;
           std::any_of(buffers.begin(), buffers.begin() + static_cast<std::ptrdiff_t>(i), taken);)
        lowest.offset += 64;
      CHECK(buffers[i].offset == lowest.offset);
    }
  }
}

// Return the byte ranges compared for the buffers of `blocks` blocks: results that live until backward reaches
// their block again, and two short ones for each block and direction.
int64_t compared(int blocks) {
  const int end = 2 * blocks;
  FreeSpace space(end);
  const auto place = [&](int first, int last, int64_t bytes) {
    space.take(first, last, space.lowest(first, last, bytes), bytes);
  };
  for (int64_t bytes : {4096, 1024, 64})
    for (int i = 0; i < blocks; ++i) {
      if (bytes != 1024) place(i, end - 1 - i, bytes);
      for (int at : {i, end - 1 - i}) place(at, std::min(at + 1, end - 1), bytes / 2);
    }
  return space.compared();
}

TEST_CASE("the search for offsets grows about linearly with the depth of a model") {
  CHECK(compared(200) > 200);
  CHECK(compared(4000) < 3 * compared(2000));
}

TEST_CASE("reuse, recompute, poison and alignment never change a bit") {
  const auto want = gradients(4, 1, 4, {});
  CHECK(want[0] != 0.0f);
  ExecutorOptions apart, again, poisoned, shifted;
  apart.plan.reuse = false;
  again.plan.recompute = true;
  poisoned.poison = true;
  poisoned.plan.recompute = true;
  shifted.plan.shift = 24;
  shifted.poison = true;
  for (const ExecutorOptions& o : {apart, again, poisoned, shifted}) CHECK(same_bits(gradients(4, 1, 4, o), want));
}

TEST_CASE("micro-batches never change a bit: one run of eight shards, two of four, four of two, eight of one") {
  const auto want = gradients(8, 1, 8, {});
  for (int runs : {2, 4, 8}) CHECK(same_bits(gradients(8, runs, 8 / runs, {}), want));
  // The tree matters: one shard sums in another order, so the test above can fail.
  CHECK_FALSE(same_bits(gradients(8, 1, 1, {}), want));
}

TEST_CASE("the first non-finite node is named") {
  ParamStore store = make_store();
  Built b = build(store, 1, 1);
  ExecutorOptions o;
  o.check_finite = true;
  Executor e(std::move(b.graph), store, {b.loss}, {b.loss}, o);
  const auto x = numbers(4, 40);
  std::memcpy(e.value(e.input("x")).data, x.data(), 160);
  e.run({}, 0);
  CHECK(e.first_non_finite().empty());
  store.planes().master(1)[3] = std::numeric_limits<float>::infinity();
  e.run({}, 0);
  CHECK(e.first_non_finite() == "rms_norm (forward) in block: output 0, float32 [1, 5, 8], -inf at [0, 0, 3]");
}

TEST_CASE("misuse is refused") {
  Graph g(true, Shards::cut(2, 1));
  const ValueId x = g.input("x", {{2, 4}, DType::f32});
  CHECK_THROWS_AS(g.input("x", {{2, 4}, DType::f32}), Error);
  CHECK_THROWS_AS(g.apply("no_such_op", {}, {x}, ""), Error);
  Attributes wrong;
  wrong.values["epsilon"] = 1.0;
  CHECK_THROWS_AS(g.apply("rms_norm", wrong, {x}, ""), Error);
  CHECK_THROWS_AS(Shards::cut(4, 3), Error);
}
