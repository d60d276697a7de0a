// GradientSync: what the processes of one run tell each other in a step, and which part of every parameter is
// whose. It hears of each gradient that is final, so that sums over processes can start while backward goes on.
// This class is that of a process alone, which has nobody to tell.
#pragma once

#include "mudd/dist/comm.h"
#include "mudd/graph/executor.h"
#include "mudd/train/step_totals.h"

namespace mudd {

class GradientSync : public GradientObserver {
 public:
  explicit GradientSync(const Executor& executor) : executor_(executor) {}

  // The elements of parameter i whose gradient is summed, and whose weights are updated, here; begin and end are
  // borders of units (params/units.h).
  virtual Part part(int i) const {
    const ParamStore& store = executor_.store();
    const OwnSlices* cut = executor_.gradients().cut() ? store.cut() : nullptr;
    if (cut) return cut->own(i);
    return store.deals(i) ? store.parameters().held(i) : store.parameters().whole(i);
  }
  // Of a use whose total is given by its rows: the total over all processes; null: whole in the flat plane.
  virtual const RowTotal* rows(int i, int use) const { return executor_.gradients().rows(i, use); }

  // What this process does from now on, in which step: what others print of it when it fails or hangs.
  virtual void enter(dist::Phase /*phase*/, int64_t /*step*/) {}
  // Before each graph run: whether the step ends here, alike everywhere if the graph itself adds over the batch.
  virtual bool stops(bool asked) { return asked; }
  // After each graph run: makes these numbers of its samples those of all processes, where they sum after each
  // run.
  virtual void sum_run(std::span<double> /*values*/) {}
  // How ops of the graph add over the whole batch.
  virtual BatchSum* batch_sum() { return nullptr; }

  void finished(const GradientUse&) override {}
  // Returns when the gradients of this step are summed over all processes; dropped: this one did not compute them.
  virtual void finish_gradients(bool /*dropped*/) {}
  // Makes the totals those of the whole batch, alike everywhere.
  virtual void exchange(StepTotals&) {}
  // After the update. finite: of the weights written here; true if it is so everywhere. Those of other nodes may
  // still be on their way: graphs wait for each parameter (ParamStore::await), all else after settle().
  virtual bool finish_update(bool finite) { return finite; }
  // Seconds for which graphs have waited for weights since the last update.
  virtual double seconds_of_waiting() const { return 0; }
  // Returns when all weights are here. Called by all processes together.
  virtual void settle() {}

 protected:
  const Executor& executor_;
};

}  // namespace mudd
