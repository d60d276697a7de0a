#include "mudd/train/accumulate.h"

#include <algorithm>
#include <utility>

#include "mudd/base/check.h"
#include "mudd/base/stop.h"
#include "mudd/kernels/reduce/reduce.h"

namespace mudd {

Accumulate::Accumulate(Executor& executor, SummedValues values, const BatchPart& part, bool means)
    : executor_(executor),
      values_(std::move(values)),
      part_(part),
      means_(means),
      targets_(executor.input("targets")) {
  check(executor.graph().training(), "train_step", "graph: expected one recorded for training");
  size_t columns = 0;
  for (ValueId v : values_.metrics) columns += static_cast<size_t>(executor.graph().values().at(v).spec.cols());
  metrics_.resize(columns);
  if (values_.samples == kAbsent) return;
  const TensorSpec& spec = executor.graph().values().at(values_.samples).spec;
  samples_.resize(static_cast<size_t>(executor.runs_per_step() * spec.rows() * spec.cols()));
}

void Accumulate::run(const StepInput& input, const FillRun& fill, GradientSync& sync, StepTotals& totals,
                     StepClock& clock) {
  totals.clear();
  const int runs = executor_.runs_per_step();
  const int64_t samples = executor_.graph().shards().samples();
  for (int r = 0; r < runs; ++r) {
    totals.stop = sync.stops(stop_requested());
    clock.lap(&StepSeconds::messages);
    if (totals.stop) return;
    const RunSamples taken = part_.of(input.step, r, runs, samples);
    sync.enter(dist::Phase::data, input.step);
    fill(taken, executor_);
    StepInput own = input;
    own.first_sample = taken.first;
    own.batch_sum = sync.batch_sum();
    totals.means = means_ && targets_ != kAbsent && own.batch_sum == nullptr;
    if (totals.means) own.loss_scale = slots_over_counted();
    clock.lap(&StepSeconds::data);
    sync.enter(dist::Phase::forward, input.step);
    executor_.forward(executor_.workspace(), own, r);
    clock.lap(&StepSeconds::forward);
    sync.enter(dist::Phase::backward, input.step);
    executor_.backward(executor_.workspace(), r, &sync);
    add_run(r, own.loss_scale, sync, totals);
    keep_samples(r);
    clock.lap(&StepSeconds::backward);
  }
}

double Accumulate::shards_of(ValueId id) const {
  const Tensor t = executor_.value(id);
  return shard_sum(static_cast<double*>(t.data), static_cast<int>(t.rows * t.cols));
}

// Return the factor that scales the sums of a graph run to a run without ignored targets; 1 for such a run,
// which keeps its bits.
double Accumulate::slots_over_counted() const {
  const Tensor targets = executor_.value(targets_);
  int64_t counted = 0;
  for (int64_t r = 0; r < targets.rows; ++r)
    for (int64_t c = 0; c < targets.cols; ++c) counted += targets.i32()[r * targets.stride + c] >= 0;
  return static_cast<double>(targets.rows * targets.cols) / static_cast<double>(std::max<int64_t>(1, counted));
}

// Return the sum over the samples of each shard, then over the shards.
double Accumulate::metric_of(const Tensor& metrics, int64_t column) const {
  const Shards& shards = executor_.graph().shards();
  shard_tree::Counter<double> sums;
  double total = 0;
  for (int s = 0; s < shards.count(); ++s) {
    double sum = 0;
    for (int64_t r = shards.row_begin(s, metrics.rows); r < shards.row_begin(s + 1, metrics.rows); ++r)
      sum += static_cast<double>(metrics.f32()[r * metrics.stride + column]);
    total = sums.add(s, shards.count(), sum);
  }
  return total;
}

void Accumulate::keep_samples(int run) {
  if (values_.samples == kAbsent) return;
  const Tensor from = executor_.value(values_.samples);
  float* to = samples_.data() + run * from.rows * from.cols;
  for (int64_t r = 0; r < from.rows; ++r) to = std::copy_n(from.f32() + r * from.stride, from.cols, to);
}

void Accumulate::add_run(int run, double scale, GradientSync& sync, StepTotals& totals) {
  const int runs = executor_.runs_per_step();
  const double counted = shards_of(values_.count);
  totals.add_count(counted, run == 0);
  std::vector<double>& sums = run_sums_;
  const auto scaled = [&](ValueId id) { return id == kAbsent ? 0.0 : scale * shards_of(id); };
  sums = {scaled(values_.loss), counted, scaled(values_.aux), scaled(values_.objective)};
  for (ValueId v : values_.metrics) {
    const Tensor t = executor_.value(v);
    for (int64_t c = 0; c < t.cols; ++c) sums.push_back(metric_of(t, c));
  }
  sync.sum_run(sums);
  totals.loss = losses_.add(run, runs, sums[0]);
  totals.count = counts_.add(run, runs, sums[1]);
  if (values_.aux != kAbsent) totals.aux = aux_losses_.add(run, runs, sums[2]);
  totals.objective = values_.objective == kAbsent ? totals.loss : objectives_.add(run, runs, sums[3]);
  for (size_t f = 0; f < totals.metrics.size(); ++f) totals.metrics[f] = metrics_[f].add(run, runs, sums[4 + f]);
  if (targets_ != kAbsent) {
    const Tensor targets = executor_.value(targets_);
    totals.slots += static_cast<double>(targets.rows * targets.cols);
  }
}

}  // namespace mudd
