// GradientSync: what the processes of one run tell each other in a step. It hears of each gradient that is final,
// so that sums over processes can start while backward goes on. A process alone has nobody to tell.
#pragma once

#include "mudd/graph/executor.h"
#include "mudd/train/step_totals.h"

namespace mudd {

class GradientSync : public GradientObserver {
 public:
  // Returns when the gradients of this step are summed over all processes. Not called in a step that stops.
  virtual void finish_gradients() = 0;
  // Makes the totals those of the whole batch, alike everywhere; once a step, the only exchange of numbers.
  virtual void exchange(StepTotals& totals) = 0;
};

class OneProcess final : public GradientSync {
 public:
  void finished(const GradientUse&) override {}
  void finish_gradients() override {}
  void exchange(StepTotals&) override {}
};

}  // namespace mudd
