// TrainStep: one optimizer update as one call (contracts 2, 3, 7, 21, 22), in stages: accumulate the
// micro-batches, sum the gradients over processes, exchange the totals, run the finite check, clip, update.
// Saved state changes only after the finite check; no allocation after construction.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "mudd/kernels/reduce/reduce.h"
#include "mudd/train/accumulate.h"
#include "mudd/train/gradient_sync.h"
#include "mudd/train/step_totals.h"
#include "mudd/train/weight_average.h"
#include "mudd/train/weight_update.h"

namespace mudd {

struct TrainStepOptions {
  UpdateOptions update = {};
  double clip = 1.0;  // largest global gradient norm; 0: no clipping
  Normalize normalize = Normalize::valid;
  uint64_t seed = 0;                    // for random draws of ops (StepInput)
  BatchPart part = {};                  // of this process
  StepClock::Now now = steady_seconds;  // another clock for tests
  bool average = false;                 // keep a WeightAverage
  int average_plane = -1;               // of an earlier step of the same run; -1: a new one
};

class TrainStep {
 public:
  // The executor's graph has inputs "inputs" and "targets" (i32[B,T] of one run) and keeps the summed values.
  // sync: for the processes that share the batch, created for this executor; null: a single process.
  TrainStep(Executor& executor, const SummedValues& values, const TrainStepOptions& options,
            std::shared_ptr<GradientSync> sync = nullptr);

  // updates: optimizer updates accepted so far (Adam's t is one more). flags: reported if any process that
  // shares the batch sets them. average: the weight of the new weights in the WeightAverage; 0: it stays as it is.
  StepReport run(const StepInput& input, int64_t updates, double lr, const FillRun& fill,
                 const StepLimits& limits = {}, uint32_t flags = 0, double average = 0);

  // Return the average of the weights; Error if the step keeps none.
  WeightAverage& average();

  // Return when all weights of the last update are here. All processes call it together, before any reader
  // except another run.
  void settle() { sync_->settle(); }
  // Return the elements of parameter i that are updated here.
  Part part(int i) const { return sync_->part(i); }

  // Show each value of the steps that follow to an observer (Executor::observe); null: none.
  void observe(std::shared_ptr<NodeObserver> observer);

  Executor& executor() { return executor_; }

  // Return the sums of the last step's metrics, in order.
  const std::vector<double>& metrics() const { return totals_.metrics; }
  // Return the rows of SummedValues::samples of the last step.
  const std::vector<float>& samples() const { return accumulate_.samples(); }

  // Return the planes of the moments in the ParamStore (WeightUpdate::moments).
  const std::vector<int>& moments() const { return update_.moments(); }
  int64_t scratch_bytes() const { return update_.scratch_bytes(); }  // of the optimizer
  const StepSeconds& seconds() const { return clock_.seconds(); }    // of the last step

 private:
  void show_state();
  void show_sums();
  void show_numbers(StepReport& report);
  void show_number(const char* name, double& number);

  Executor& executor_;
  TrainStepOptions options_;
  std::shared_ptr<NodeObserver> observer_;
  std::shared_ptr<GradientSync> sync_;
  Accumulate accumulate_;
  WeightUpdate update_;
  std::optional<WeightAverage> average_;
  std::vector<GradientPlanes> gradients_;
  StepTotals totals_;
  StepClock clock_;
};

}  // namespace mudd
