// Accumulate: the first stage of a step. Forward and backward of all micro-batches; their losses, counts and
// metrics are added up by the tree of contracts 2, their gradients by the executor.
#pragma once

#include <functional>
#include <vector>

#include "mudd/base/shard_tree.h"
#include "mudd/graph/executor.h"
#include "mudd/train/batch_part.h"
#include "mudd/train/gradient_sync.h"
#include "mudd/train/step_totals.h"

namespace mudd {

// Fills the inputs of a graph run with these samples.
using FillRun = std::function<void(const RunSamples& samples, Executor& executor)>;

// Values of the graph that a step adds up.
struct SummedValues {
  ValueId loss = kAbsent, count = kAbsent;  // f64[S] of cross_entropy
  ValueId aux = kAbsent;                    // further loss sums f64[S]
  std::vector<ValueId> metrics = {};        // fp32 [B, W]: summed over the samples of a shard, then over shards
};

class Accumulate {
 public:
  // means: every graph run weighs alike, whatever targets it counts (Normalize::micro_mean), where the batch is
  // here.
  Accumulate(Executor& executor, SummedValues values, const BatchPart& part, bool means = false);

  // Overwrites the totals, norm_squares excepted. Ends early, with totals.stop, when a stop is asked for.
  void run(const StepInput& input, const FillRun& fill, GradientSync& sync, StepTotals& totals);

 private:
  double shards_of(ValueId id) const;
  double metric_of(const Tensor& metrics, int64_t column) const;
  void add_run(int run, double scale, GradientSync& sync, StepTotals& totals);
  double slots_over_counted() const;

  Executor& executor_;
  SummedValues values_;
  BatchPart part_;
  bool means_;
  ValueId targets_;
  shard_tree::Counter<double> losses_, counts_, aux_losses_;
  std::vector<shard_tree::Counter<double>> metrics_;
  std::vector<double> run_sums_;  // loss, count, auxiliary loss and metrics of a run
};

}  // namespace mudd
