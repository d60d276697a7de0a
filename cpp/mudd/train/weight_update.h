// WeightUpdate: the last stage of a step. Every parameter with a gradient, its moments and its packed copies, by
// the optimizer.
#pragma once

#include <cstdint>
#include <vector>

#include "mudd/graph/executor.h"
#include "mudd/optim/update.h"

namespace mudd {

struct UpdateOptions {
  Optimizer optimizer = Optimizer::adamw;
  DType moment = DType::f32;  // type of the first moment: f32 or bf16
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  double peak_lr = 0;              // independent decay is weight_decay * lr / peak_lr: the schedule's factor
  std::vector<int> moment_planes;  // of an earlier step of the same run; empty: new ones
};

class WeightUpdate {
 public:
  WeightUpdate(Executor& executor, const UpdateOptions& options);

  // updates: optimizer updates accepted so far (Adam's t is one more); grad_scale: what the summed gradients are
  // multiplied with. False: a weight or moment that was written is not finite.
  bool run(int64_t updates, double lr, double grad_scale);

  // Planes of the moments in the ParamStore, the first one first.
  const std::vector<int>& moments() const { return moments_; }

 private:
  void book_moments();
  void add_matrix(int parameter, int64_t s);

  Executor& executor_;
  UpdateOptions options_;
  std::vector<int> moments_;
  std::vector<UpdateParameter> parameters_;
  std::vector<int> indices_;       // of parameters_ in the store
  std::vector<int64_t> in_stack_;  // which matrix of that parameter's stack
};

}  // namespace mudd
