// Weights go back to the other nodes in the order in which forward reads them: else the gather cannot hide.
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "compare.h"
#include "doctest/doctest.h"
#include "mudd/dist/comm_threads.h"
#include "mudd/params/init.h"
#include "mudd/train/shared_step.h"
#include "mudd/train/step.h"

using namespace mudd;
using namespace mudd::test;

namespace {

constexpr int64_t kSamples = 2, kTime = 4, kWidth = 1024, kVocabulary = 11;  // a matrix fills a bucket
constexpr int kLayers = 4;

// A Comm that records the memory of every gather.
class Noting final : public dist::Comm {
 public:
  explicit Noting(dist::Comm& comm) : comm_(comm) {}
  std::vector<const float*> gathers;

  std::shared_ptr<dist::Pending> gather_between_nodes(void* data, int64_t width,
                                                      std::span<const dist::OwnedRange> pieces) override {
    gathers.push_back(static_cast<const float*>(data) + pieces.front().offset);
    return comm_.gather_between_nodes(data, width, pieces);
  }
  int rank() const override { return comm_.rank(); }
  int world() const override { return comm_.world(); }
  int node_size() const override { return comm_.node_size(); }
  std::shared_ptr<dist::Window> window(int64_t bytes) override { return comm_.window(bytes); }
  int64_t longest_message() const override { return comm_.longest_message(); }
  int64_t shared_bytes_free() const override { return comm_.shared_bytes_free(); }
  void split_nodes() override { comm_.split_nodes(); }
  void node_barrier(dist::Site site) override { comm_.node_barrier(site); }
  void barrier(dist::Site site) override { comm_.barrier(site); }
  void all_gather(const void* mine, int64_t bytes, void* out, dist::Site site) override {
    comm_.all_gather(mine, bytes, out, site);
  }
  void broadcast(void* data, int64_t bytes, int root, dist::Site site) override {
    comm_.broadcast(data, bytes, root, site);
  }
  std::shared_ptr<dist::Pending> sum_between_nodes(float* data, std::span<const dist::OwnedRange> pieces,
                                                   int64_t row, const dist::Wire& wire) override {
    return comm_.sum_between_nodes(data, pieces, row, wire);
  }
  void exchange(std::span<const int> members, std::span<const dist::Piece> sends,
                std::span<const dist::Piece> receives, dist::Site site) override {
    comm_.exchange(members, sends, receives, site);
  }
  std::shared_ptr<dist::Pending> sum_among(std::span<const int> members, float* data,
                                           std::span<const dist::OwnedRange> pieces) override {
    return comm_.sum_among(members, data, pieces);
  }
  std::shared_ptr<dist::Pending> gather_among(std::span<const int> members, void* data, int64_t width,
                                              std::span<const dist::OwnedRange> pieces) override {
    return comm_.gather_among(members, data, width, pieces);
  }
  std::map<std::string, dist::Traffic> counters() const override { return comm_.counters(); }
  void set_phase(dist::Phase phase, int64_t step) override { comm_.set_phase(phase, step); }
  dist::Phase phase() const override { return comm_.phase(); }
  void watch(double seconds) override { comm_.watch(seconds); }
  void fail(int code, const std::string& message) override { comm_.fail(code, message); }
  bool close(double patience) override { return comm_.close(patience); }

 protected:
  void pause(int) override { std::this_thread::yield(); }
  void resume() override {}

 private:
  dist::Comm& comm_;
};

std::string layer(int i) { return "layer" + std::to_string(i); }

ParamStore stack() {
  ParamStore store;
  const auto declare = [&](const std::string& name, std::vector<int64_t> shape, Role role) {
    store.parameters().declare(
        {.name = name, .shape = std::move(shape), .role = role, .init = "normal", .init_scale = 0.02});
  };
  declare("embed", {kVocabulary, kWidth}, Role::embedding);
  for (int i = 0; i < kLayers; ++i) declare(layer(i), {kWidth, kWidth}, Role::matrix);
  declare("head", {kVocabulary, kWidth}, Role::embedding);
  store.allocate();
  initialize(store, 1);
  return store;
}

std::vector<ValueId> loss_of(Graph& graph, const ParamStore& store) {
  const auto parameter = [&](const std::string& name) {
    const int slot = store.parameters().find(name);
    return graph.parameter(name, {store.parameters().at(slot).shape, DType::f32}, slot, true);
  };
  const ValueId inputs = graph.input("inputs", {{kSamples, kTime}, DType::i32});
  const ValueId targets = graph.input("targets", {{kSamples, kTime}, DType::i32});
  ValueId x = graph.apply("embedding", {}, {inputs, parameter("embed")}, "")[0];
  for (int i = 0; i < kLayers; ++i) x = graph.apply("linear", {}, {x, parameter(layer(i))}, "")[0];
  return graph.apply("cross_entropy", {}, {x, parameter("head"), targets}, "");
}

void fill(Executor& executor) {
  for (const char* name : {"inputs", "targets"})
    for (int64_t i = 0; i < kSamples * kTime; ++i)
      executor.workspace().value(executor.input(name)).i32()[i] = i % kVocabulary;
}

// The names of the parameters whose gathers a rank posted after its first update, in order.
std::vector<std::string> gathers_of(dist::Comm& comm) {
  Noting noting(comm);
  ParamStore store = stack();
  Graph graph(true, Shards::cut(1, 1));
  const std::vector<ValueId> loss = loss_of(graph, store);
  NodeGradients gradients(noting);
  ExecutorOptions options;
  options.gradient_memory = gradients.memory();
  Executor executor(std::move(graph), store, {loss[0]}, {loss[0], loss[1]}, options);
  const auto sync =
      std::make_shared<SharedStep>(executor, gradients, false, [](const Parameter&) { return false; });
  const BatchPart part{.begin = comm.rank() * kSamples, .batch = comm.world() * kSamples};
  TrainStep step(executor, {.loss = loss[0], .count = loss[1]}, {.part = part}, sync);
  step.run({.step = 0}, 0, 1e-3, [](const RunSamples&, Executor& e) { fill(e); });
  sync->settle();
  std::vector<std::string> names;
  for (const float* first : noting.gathers)
    for (int i = 0; i < store.parameters().count(); ++i)
      if (first >= store.planes().master(i) && first < store.planes().master(i) + store.parameters().at(i).size())
        names.push_back(store.parameters().at(i).name);
  return names;
}

}  // namespace

TEST_CASE("gathers of weights are posted in the order of forward") {
  const auto ranks = dist::thread_ranks(2, 1, {});
  std::vector<std::vector<std::string>> found(2);
  std::vector<std::thread> threads;
  for (int r : {0, 1}) threads.emplace_back([&, r] { found[r] = gathers_of(*ranks[r]); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& names : found) {
    REQUIRE(names.size() >= kLayers);
    std::vector<std::string> layers;
    for (const std::string& name : names)
      if (name.starts_with("layer")) layers.push_back(name);
    CHECK(std::is_sorted(layers.begin(), layers.end()));
    CHECK(layers.size() + 1 >= kLayers);  // the last one may share its bucket with the head
  }
}

TEST_CASE("every parameter is awaited before its first reader, the head by the loss in backward too") {
  struct Noted final : Arrival {
    std::vector<int> awaited;
    void await(int i) override { awaited.push_back(i); }
  } noted;
  ParamStore store = stack();
  Graph graph(true, Shards::cut(1, 1));
  const std::vector<ValueId> loss = loss_of(graph, store);
  Executor executor(std::move(graph), store, {loss[0]}, {loss[0], loss[1]}, {});
  store.set_arrival(&noted);
  fill(executor);
  executor.run({.step = 0}, 0);
  store.set_arrival(nullptr);
  std::vector<int> all(static_cast<size_t>(store.parameters().count()));
  std::iota(all.begin(), all.end(), 0);
  CHECK(noted.awaited == all);
}
