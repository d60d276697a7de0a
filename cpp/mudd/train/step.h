// TrainStep: one optimizer update as one call. All micro-batches forward and backward, the sums over the whole
// batch, clipping, the update with repacking (contracts 2, 3, 7, 21, 22). Nothing that is saved changes before the
// verdict; after construction nothing is allocated.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "mudd/base/shard_tree.h"
#include "mudd/graph/executor.h"
#include "mudd/kernels/reduce/reduce.h"
#include "mudd/optim/update.h"

namespace mudd {

// The denominator that turns the summed loss and gradients into means (contracts 3).
enum class Normalize : uint8_t { valid, all_slots, micro_mean };
Normalize parse_normalize(const std::string& name);

struct TrainStepOptions {
  Optimizer optimizer = Optimizer::adamw;
  DType moment = DType::f32;  // type of the first moment: f32 or bf16
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  double peak_lr = 0;  // independent decay is weight_decay * lr / peak_lr: the schedule's factor
  double clip = 1.0;   // largest global gradient norm; 0: no clipping
  Normalize normalize = Normalize::valid;
  uint64_t seed = 0;               // of what ops draw at random (StepInput)
  ValueId aux = kAbsent;           // further loss sums f64[S], added to the loss
  std::vector<ValueId> figures;    // fp32 values [B, W], summed over the samples of the whole batch
  std::vector<int> moment_planes;  // of an earlier TrainStep of the same run; empty: new ones
};

struct StepReport {
  double loss_sum = 0, weight_sum = 0;  // nats over counted targets; counted targets
  double aux_loss = 0;                  // the auxiliary part, divided by the denominator
  double loss = 0;                      // divided by the denominator, the auxiliary part included
  double grad_norm = 0;                 // of the mean gradient, before clipping
  bool finite = true;                   // loss and gradient norm; false: no update was made
  bool spike = false;                   // finite, but above a limit of StepLimits: no update was made
  bool spoilt = false;                  // the update wrote a weight or moment that is not finite
  bool stopped = false;                 // a stop was asked for between micro-batches: nothing changed
};

// The largest loss and gradient norm that an update is made for.
struct StepLimits {
  double loss = std::numeric_limits<double>::infinity();
  double grad_norm = std::numeric_limits<double>::infinity();
};

class TrainStep {
 public:
  // The executor's graph has inputs "inputs" and "targets" (i32[B,T] of one run) and keeps loss and count
  // (f64[S]).
  TrainStep(Executor& executor, ValueId loss, ValueId count, const TrainStepOptions& options);

  // Fills the inputs of graph run `run` of this step.
  using FillRun = std::function<void(int run, Executor& executor)>;

  // updates: optimizer updates accepted so far (Adam's t is one more).
  StepReport run(const StepInput& input, int64_t updates, double lr, const FillRun& fill,
                 const StepLimits& limits = {});

  Executor& executor() { return executor_; }

  // The sums of the last step's figures, one after the other.
  const std::vector<double>& figures() const { return figure_sums_; }

  // Planes of the moments in the ParamStore, the first one first.
  const std::vector<int>& moments() const { return moments_; }

 private:
  void add_matrix(int parameter, int64_t s);
  double denominator(double weight_sum) const;
  void add_figures();
  bool update(int64_t updates, double lr, double grad_scale);

  Executor& executor_;
  ValueId loss_, count_;
  TrainStepOptions options_;
  std::vector<int> moments_;
  std::vector<UpdateParameter> parameters_;
  std::vector<int> indices_;       // of parameters_ in the store
  std::vector<int64_t> in_stack_;  // which matrix of that parameter's stack
  std::vector<GradientPlanes> gradients_;
  shard_tree::Counter<double> losses_, counts_, aux_losses_;
  std::vector<double> block_sums_, figure_sums_;
};

}  // namespace mudd
