// The two halves of a graph run, workspaces, and gradients that are reported as soon as they are final.
#include "mudd/graph/executor.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "block_graph.h"
#include "compare.h"
#include "mudd/base/check.h"

using namespace mudd;
using namespace mudd::test;

namespace {

constexpr int kRuns = 4;

std::unique_ptr<Executor> make_executor(ParamStore& store, ExecutorOptions options = {}) {
  Recorded r = record(store);
  options.runs_per_step = kRuns;
  return std::make_unique<Executor>(std::move(r.graph), store, std::vector{r.loss}, std::vector{r.loss, r.count},
                                    options);
}

std::vector<std::byte> plane_of(const Executor& e) {
  return {e.gradients().plane().begin(), e.gradients().plane().end()};
}

// One step, run after run; the plane afterwards.
std::vector<std::byte> step(Executor& e, GradientObserver* observer = nullptr) {
  for (int run = 0; run < kRuns; ++run) {
    fill_ids(e, e.workspace(), run);
    e.run({}, run, observer);
  }
  return plane_of(e);
}

// Copies every gradient when it is reported.
struct Recorder : GradientObserver {
  explicit Recorder(const Executor& executor) : e(executor) {}
  void finished(const GradientUse& use) override {
    const float* total = e.gradients().whole(use.parameter, use.use);
    uses.push_back(use);
    copies.emplace_back(total, total + e.store().parameters().at(use.parameter).size());
  }
  const Executor& e;
  std::vector<GradientUse> uses;
  std::vector<std::vector<float>> copies;
};

}  // namespace

TEST_CASE("every use is reported once, when it is final, in the order of the plane") {
  ParamStore store = block_store();
  const auto e = make_executor(store, {.gradient_rows = false});
  Recorder recorder(*e);
  for (int run = 0; run + 1 < kRuns; ++run) {
    fill_ids(*e, e->workspace(), run);
    e->run({}, run, &recorder);
    CHECK(recorder.uses.empty());  // none is final yet
  }
  fill_ids(*e, e->workspace(), kRuns - 1);
  e->run({}, kRuns - 1, &recorder);
  int total = 0;
  for (int i = 0; i < store.parameters().count(); ++i) total += e->gradients().uses(i);
  REQUIRE(std::ssize(recorder.uses) == total);
  CHECK(total == store.parameters().count() + 5);  // table, keys, values and a gain are used more than once
  std::set<std::pair<int, int>> seen;
  const std::byte* end = e->gradients().plane().data();
  for (size_t k = 0; k < recorder.uses.size(); ++k) {
    const GradientUse& u = recorder.uses[k];
    CHECK(seen.insert({u.parameter, u.use}).second);
    const float* now = e->gradients().whole(u.parameter, u.use);
    CHECK(same_bits(std::vector<float>(now, now + recorder.copies[k].size()), recorder.copies[k]));
    CHECK(reinterpret_cast<const std::byte*>(now) == end);  // the next place of the plane
    end += aligned(store.parameters().at(u.parameter).size() * 4);
  }
  CHECK(end == e->gradients().plane().data() + e->gradients().plane().size());
  // Most are final long before backward ends, so a sum over processes can overlap with backward.
  CHECK(recorder.uses.front().position < recorder.uses.back().position);
  CHECK(recorder.uses.back().position < std::ssize(e->plan().schedule));
}

TEST_CASE("gradients may lie in memory from outside") {
  ParamStore store = block_store();
  const auto own = make_executor(store);
  Arena outside;
  const auto e = make_executor(store, {.gradient_memory = [&](int64_t bytes) {
                                 outside = Arena(bytes);
                                 return outside.data();
                               }});
  CHECK(outside.bytes() == std::ssize(own->gradients().plane()));
  CHECK(e->gradients().bytes() == own->gradients().bytes());
  CHECK(e->gradients().plane().data() == outside.data());
  CHECK(step(*e) == step(*own));
  const std::vector<std::byte> before = plane_of(*e);
  CHECK(std::any_of(before.begin(), before.end(), [](std::byte b) { return b != std::byte{0}; }));
  e->release();
  CHECK(plane_of(*e) == before);  // not the executor's to give back
}

TEST_CASE("several workspaces between forward and backward give the same bits") {
  ParamStore store = block_store();
  const auto one = make_executor(store), many = make_executor(store);
  const std::vector<std::byte> want = step(*one);
  Workspace second(many->graph(), many->plan(), store);
  Workspace* const spaces[] = {&many->workspace(), &second};
  for (int run = 0; run < kRuns; run += 2) {
    for (int k : {1, 0}) {
      fill_ids(*many, *spaces[k], run + k);
      many->forward(*spaces[k], {});
    }
    for (int k : {0, 1}) many->backward(*spaces[k], run + k);
  }
  CHECK(plane_of(*many) == want);
}

TEST_CASE("backward needs its forward, and a run of the step") {
  ParamStore store = block_store();
  const auto e = make_executor(store);
  CHECK_THROWS_AS(e->backward(e->workspace(), 0), Error);
  CHECK_THROWS_AS(e->run({}, kRuns), Error);
  fill_ids(*e, e->workspace(), 0);
  e->forward(e->workspace(), {});
  e->backward(e->workspace(), 0);
  CHECK_THROWS_AS(e->backward(e->workspace(), 0), Error);  // it works in what forward saved
}
