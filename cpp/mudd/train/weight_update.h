// WeightUpdate: the last stage of a step. Updates every parameter with a gradient, its moments and its packed
// copies, with the optimizer of its group.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mudd/graph/executor.h"
#include "mudd/optim/optimizer.h"
#include "mudd/train/gradient_sync.h"

namespace mudd {

// An optimizer and its parameters.
struct UpdateGroup {
  std::string optimizer = "adamw";
  OptionValues settings = {};
  DType moment = DType::f32;  // types of the moments, the same for all groups
  DType second = DType::f32;
  double weight_decay = 0.1;
  std::vector<std::string> parameters = {};  // names; empty: all that no other group names
};

struct UpdateOptions {
  std::vector<UpdateGroup> groups = {UpdateGroup{}};
  double eps = 1e-8;
  double peak_lr = 0;              // independent decay is weight_decay * lr / peak_lr: the schedule's factor
  std::vector<int> moment_planes;  // of an earlier step of the same run; empty: new ones
};

// Return a function that is true for a parameter whose optimizer needs whole matrices.
std::function<bool(const Parameter&)> whole_matrices(const UpdateOptions& options);

class WeightUpdate {
 public:
  // sync: has the part of each parameter that is updated here.
  WeightUpdate(Executor& executor, const UpdateOptions& options, const GradientSync& sync);

  // updates: optimizer updates accepted so far (Adam's t is one more); grad_scale: the factor of the summed
  // gradients. Return false if a written weight or moment is not finite.
  bool run(int64_t updates, double lr, double grad_scale);

  // Show the weights and moments that are updated here to an observer; before a step (state), or after it
  // (update).
  void show(StepStage stage, const GradientSync& sync, NodeObserver& observer) const;

  // Return the planes of the moments in the ParamStore: the first, the second, the second's row and column
  // moments, the updates of rows, up to the last one with a parameter.
  const std::vector<int>& moments() const { return moments_; }
  int64_t scratch_bytes() const { return scratch_.bytes(); }

 private:
  enum Moment { kFirst, kSecond, kRows, kColumns, kUpdates };  // indices in moments()

  // The matrices of an optimizer, or their rows that are updated here. indices: of their parameters in the
  // store; in_stack: the index of the matrix in its stack.
  struct Group {
    std::unique_ptr<Optimizer> optimizer;
    double weight_decay = 0;
    std::vector<UpdateParameter> matrices;
    std::vector<int> indices;
    std::vector<int64_t> in_stack;
  };

  void make_groups();
  Group& group_of(int parameter) { return groups_[group_[parameter]]; }
  // Return true if the second moment of a parameter is stored by its factors.
  bool is_factored(int parameter);
  void book_moments(const GradientSync& sync);
  void add_matrix(const GradientSync& sync, const Part& part, int64_t s);
  void set_rates(Group& group, double lr) const;

  Executor& executor_;
  UpdateOptions options_;
  DType moment_, second_;  // types of the moments
  std::vector<Group> groups_;
  std::vector<size_t> group_;  // of every parameter
  std::vector<int> moments_;
  Arena scratch_;  // of one group at a time
};

}  // namespace mudd
