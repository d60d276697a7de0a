// GradientSync: the communication between the processes of a run in a step, and the part of every parameter
// that each process owns. It is notified of each final gradient, so that sums over processes can start while
// backward continues. This base class is for a single process.
#pragma once

#include "mudd/dist/comm.h"
#include "mudd/graph/executor.h"
#include "mudd/train/step_totals.h"

namespace mudd {

class GradientSync : public GradientObserver {
 public:
  explicit GradientSync(const Executor& executor) : executor_(executor) {}

  // Return the elements of parameter i whose gradient is summed, and whose weights are updated, here; begin and
  // end are borders of units (params/units.h).
  virtual Part part(int i) const {
    const ParamStore& store = executor_.store();
    const OwnSlices* cut = executor_.gradients().cut() ? store.cut() : nullptr;
    if (cut) return cut->own(i);
    return store.deals(i) ? store.parameters().held(i) : store.parameters().whole(i);
  }
  virtual int ranks() const { return 1; }  // that sum their gradients
  // Return the total over all processes for a use with a row list; null: whole in the flat buffer.
  virtual const RowTotal* rows(int i, int use) const { return executor_.gradients().rows(i, use); }

  // Set the activity and step of this process, which others print when it fails or hangs.
  virtual void enter(dist::Phase /*phase*/, int64_t /*step*/) {}
  // Before each graph run: return whether the step ends here, equal on all ranks if the graph adds over the
  // batch.
  virtual bool stops(bool asked) { return asked; }
  // After each graph run: replace these sums of its samples by the sums over all processes, if they sum after
  // each run.
  virtual void sum_run(std::span<double> /*values*/) {}
  // Return the adder for ops of the graph that add over the whole batch.
  virtual BatchSum* batch_sum() { return nullptr; }

  void finished(const GradientUse&) override {}
  // Return when the gradients of this step are summed over all processes; dropped: this process did not compute
  // them.
  virtual void finish_gradients(bool /*dropped*/) {}
  // Replace the totals by the totals of the whole batch, equal on all ranks.
  virtual void exchange(StepTotals&) {}
  // After the update. finite: whether the weights written here are finite; returns true if they are on all
  // ranks. Weights of other hosts may still be in transit: graphs wait for each parameter (ParamStore::await),
  // other readers call settle().
  virtual bool finish_update(bool finite) { return finite; }
  // Return the seconds so far in which this process has waited for others, and in which messages were in transit
  // while it did not wait.
  virtual double waited_seconds() const { return 0; }
  virtual double hidden_seconds() const { return 0; }
  // Return when all weights are here. All processes call it together.
  virtual void settle() {}

 protected:
  const Executor& executor_;
};

}  // namespace mudd
