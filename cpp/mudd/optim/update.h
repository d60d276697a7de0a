// The elementwise optimizers: one sweep over all their parameters that clips, updates and repacks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "mudd/base/parallel.h"
#include "mudd/optim/optimizer.h"
#include "mudd/optim/update_kernels.h"

namespace mudd {

// Refresh the pieces of panels of rows [r, r_end) x columns [c, c_end) of p.
void repack(const UpdateParameter& p, int64_t r, int64_t r_end, int64_t c, int64_t c_end);

constexpr int64_t kCopied = 4096;  // elements at a time of a gradient with a row list

// The planes of elements [at, at + n) of a parameter's gradient. n: at most kCopied, if a plane has a row list.
struct GradientPiece {
  GradientPiece(const UpdateParameter& p, int64_t at, int64_t n);
  const float* planes[kMaxGradientUses] = {};
  float copies[kMaxGradientUses][kCopied];  // of planes with a row list
};

// Call body(parameter, task) for each of the tasks_of(parameter) tasks of every parameter, in parallel.
template <class Tasks, class Body>
void over_tasks(std::span<UpdateParameter> parameters, Tasks tasks_of, Body body) {
  int64_t tasks = 0;
  for (UpdateParameter& p : parameters) {
    p.first_task = tasks;
    tasks += tasks_of(p);
  }
  parallel_for(tasks, [&](int64_t task, int) {
    const auto after = std::upper_bound(parameters.begin(), parameters.end(), task,
                                        [](int64_t t, const UpdateParameter& p) { return t < p.first_task; });
    UpdateParameter& p = *(after - 1);  // one without tasks shares first_task with the next
    body(p, task - p.first_task);
  });
}

// An optimizer that updates each weight separately; its spec has its kernels. Memory: reads w, the moments and
// g, writes w, the moments and the packed copies once each.
class Elementwise : public Optimizer {
 public:
  explicit Elementwise(const OptimizerSettings& settings)
      : Optimizer(settings), kernels_(choose(settings.spec().rows)) {}
  bool update(std::span<UpdateParameter> matrices, int64_t n, double grad_scale,
              std::byte* scratch) const override;
  // Return the factors of update n.
  virtual UpdateFactors factors(const UpdateParameter& parameter, int64_t n, double grad_scale) const = 0;

 protected:
  const UpdateKernels& kernels_;
};

}  // namespace mudd
