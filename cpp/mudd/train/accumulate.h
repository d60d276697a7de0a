// Accumulate: the first stage of a step. Runs forward and backward of all micro-batches; adds their losses,
// counts and metrics by the tree of contracts 2, and the executor adds their gradients.
#pragma once

#include <functional>
#include <vector>

#include "mudd/base/shard_tree.h"
#include "mudd/graph/executor.h"
#include "mudd/train/batch_part.h"
#include "mudd/train/gradient_sync.h"
#include "mudd/train/step_clock.h"
#include "mudd/train/step_totals.h"

namespace mudd {

// Copies these samples to the inputs of a graph run.
using FillRun = std::function<void(const RunSamples& samples, Executor& executor)>;

// Values of the graph that a step sums.
struct SummedValues {
  ValueId loss = kAbsent, count = kAbsent;  // f64[S] of cross_entropy
  ValueId objective = kAbsent;              // f64[S]: the loss that has the gradients, if it is another one
  ValueId aux = kAbsent;                    // further loss sums f64[S]
  std::vector<ValueId> metrics = {};        // fp32 [B, W]: summed over the samples of a shard, then over shards
  ValueId samples = kAbsent;                // fp32 [B, W]: the rows of all samples of a step are kept
};

class Accumulate {
 public:
  // means: every graph run has the same weight, independent of its count of targets (Normalize::micro_mean), if
  // the whole batch is local.
  Accumulate(Executor& executor, SummedValues values, const BatchPart& part, bool means = false);

  // Overwrite the totals except norm_squares. Returns early, with totals.stop, on a stop request.
  void run(const StepInput& input, const FillRun& fill, GradientSync& sync, StepTotals& totals, StepClock& clock);

  // Return the kept rows of the last step [runs * B, W], in the order of the graph runs; empty without any.
  const std::vector<float>& samples() const { return samples_; }

 private:
  double shards_of(ValueId id) const;
  double metric_of(const Tensor& metrics, int64_t column) const;
  void add_run(int run, double scale, GradientSync& sync, StepTotals& totals);
  void keep_samples(int run);
  double slots_over_counted() const;

  Executor& executor_;
  SummedValues values_;
  BatchPart part_;
  bool means_;
  ValueId targets_;
  shard_tree::Counter<double> losses_, counts_, aux_losses_, objectives_;
  std::vector<shard_tree::Counter<double>> metrics_;
  std::vector<double> run_sums_;  // loss, count, auxiliary loss, objective and metrics of a run
  std::vector<float> samples_;
};

}  // namespace mudd
