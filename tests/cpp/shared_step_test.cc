// A step over a batch that processes share: threads represent processes, each with a separate store and
// executor. Their weights have the bits of one process with the whole batch.
#include <array>
#include <barrier>
#include <cstring>
#include <memory>
#include <thread>

#include "block_graph.h"
#include "compare.h"
#include "mudd/train/step.h"

using namespace mudd;
using namespace mudd::test;

namespace {

constexpr int kRuns = 4, kSteps = 3;

// The shared state of two processes.
struct Meeting {
  std::barrier<> barrier{2};
  std::array<std::span<std::byte>, 2> planes;
  std::array<StepTotals, 2> totals;
};

class TwoProcesses final : public GradientSync {
 public:
  TwoProcesses(const Executor& executor, Meeting& meeting, int rank)
      : GradientSync(executor), meeting_(meeting), rank_(rank) {}
  void finished(const GradientUse&) override { ++reported; }
  void finish_gradients(bool) override {
    const auto plane = [&](int rank) { return reinterpret_cast<float*>(meeting_.planes[rank].data()); };
    std::vector<float> sum(meeting_.planes[0].size() / sizeof(float));
    meeting_.barrier.arrive_and_wait();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = plane(0)[i] + plane(1)[i];
    meeting_.barrier.arrive_and_wait();
    std::memcpy(plane(rank_), sum.data(), sum.size() * sizeof(float));
  }
  void exchange(StepTotals& totals) override {
    meeting_.totals[rank_] = totals;
    meeting_.barrier.arrive_and_wait();
    const StepTotals &a = meeting_.totals[0], &b = meeting_.totals[1];
    totals.loss = a.loss + b.loss;
    totals.count = a.count + b.count;
    totals.slots = a.slots + b.slots;
    totals.least_count = std::min(a.least_count, b.least_count);
    totals.most_count = std::max(a.most_count, b.most_count);
    meeting_.barrier.arrive_and_wait();
  }
  int reported = 0;

 private:
  Meeting& meeting_;
  int rank_;
};

double planted_seconds = 0;

// A sync whose calls take planted seconds. A part of forward and backward is waiting.
class Slow final : public GradientSync {
 public:
  using GradientSync::GradientSync;
  bool stops(bool asked) override {
    planted_seconds += 0.5;
    return asked;
  }
  void enter(dist::Phase phase, int64_t) override {
    if (phase == dist::Phase::data) planted_seconds += 1;
    if (phase == dist::Phase::forward) take(4, 1);
    if (phase == dist::Phase::backward) take(8, 3);
    if (phase == dist::Phase::update) planted_seconds += 64;
  }
  void finish_gradients(bool) override { take(16, 15); }
  void exchange(StepTotals&) override { take(32, 32); }
  bool finish_update(bool finite) override {
    take(128, 0);
    return finite;
  }
  double waited_seconds() const override { return waited_; }
  double hidden_seconds() const override { return 2 * waited_; }

 private:
  void take(double seconds, double waiting) {
    planted_seconds += seconds;
    waited_ += waiting;
  }
  double waited_ = 1000;
};

struct Process {
  explicit Process(int world) : store(block_store()) {
    Recorded r = record(store);
    values = {.loss = r.loss, .count = r.count};
    ExecutorOptions options;
    options.runs_per_step = kRuns / world;
    executor = std::make_unique<Executor>(std::move(r.graph), store, std::vector{r.loss},
                                          std::vector{r.loss, r.count}, options);
  }
  // The report of the last of some steps.
  StepReport train(const BatchPart& part, std::shared_ptr<GradientSync> sync) {
    TrainStep step(*executor, values, {.normalize = Normalize::all_slots, .part = part}, sync);
    StepReport report;
    for (int i = 0; i < kSteps; ++i)
      report = step.run({.step = i}, i, 1e-2, [](const RunSamples& samples, Executor& e) {
        fill_ids(e, e.workspace(), static_cast<int>(samples.first / samples.count));
      });
    return report;
  }
  std::vector<float> weights() const {
    std::vector<float> all;
    for (int i = 0; i < store.parameters().count(); ++i)
      all.insert(all.end(), store.planes().master(i), store.planes().master(i) + store.parameters().at(i).size());
    return all;
  }
  ParamStore store;
  SummedValues values;
  std::unique_ptr<Executor> executor;
};

}  // namespace

TEST_CASE("each second of a step is in one stage, and waiting is in the messages") {
  Process process(1);
  TrainStep step(*process.executor, process.values,
                 {.normalize = Normalize::all_slots, .now = [] { return planted_seconds; }},
                 std::make_shared<Slow>(*process.executor));
  for (int i = 0; i < 2; ++i) {
    const double begin = planted_seconds;
    step.run({.step = i}, i, 1e-2, [](const RunSamples& samples, Executor& e) {
      planted_seconds += 2;
      fill_ids(e, e.workspace(), static_cast<int>(samples.first / samples.count));
    });
    const StepSeconds& t = step.seconds();
    CHECK(t.data == kRuns * (1 + 2));
    CHECK(t.forward == kRuns * (4 - 1));
    CHECK(t.backward == kRuns * (8 - 3));
    CHECK(t.update == 64);
    CHECK(t.messages == kRuns * (0.5 + 1 + 3) + 16 + 32 + 128);
    CHECK(t.data + t.forward + t.backward + t.update + t.messages == planted_seconds - begin);
    CHECK(t.hidden == 2 * (kRuns * (1 + 3) + 15 + 32));
  }
}

TEST_CASE("two processes that share every batch have the bits of one") {
  Process alone(1);
  const StepReport want = alone.train({}, nullptr);
  CHECK(want.accepted());
  CHECK_FALSE(same_bits(alone.weights(), Process(1).weights()));
  Meeting meeting;
  Process left(2), right(2);
  const std::array<Process*, 2> processes{&left, &right};
  std::array<StepReport, 2> reports;
  std::array<int, 2> reported{};
  std::vector<std::thread> threads;
  for (int rank : {0, 1}) meeting.planes[rank] = processes[rank]->executor->gradients().plane();
  for (int rank : {0, 1})
    threads.emplace_back([&, rank] {
      const auto sync = std::make_shared<TwoProcesses>(*processes[rank]->executor, meeting, rank);
      const int64_t batch = kRuns * kSamples;
      reports[rank] = processes[rank]->train({.begin = rank * batch / 2, .batch = batch}, sync);
      reported[rank] = sync->reported;
    });
  for (std::thread& t : threads) t.join();
  for (int rank : {0, 1}) {
    CHECK(same_bits(processes[rank]->weights(), alone.weights()));
    CHECK(reports[rank].loss == want.loss);
    CHECK(reports[rank].grad_norm == want.grad_norm);
    CHECK(reports[rank].denominator == want.denominator);
    CHECK(reported[rank] == kSteps * std::ssize(alone.executor->plan().gradients));
  }
}

TEST_CASE("a stop that another process was asked for drops the step here too") {
  struct Stopped final : GradientSync {
    using GradientSync::GradientSync;
    void exchange(StepTotals& totals) override { totals.stop = true; }
  };
  Process here(1);
  const std::vector<float> before = here.weights();
  CHECK(here.train({}, std::make_shared<Stopped>(*here.executor)).stopped);
  CHECK(same_bits(here.weights(), before));
}
