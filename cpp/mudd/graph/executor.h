// Executor: runs a plan (docs/architecture.md) in a workspace, its own or one of the caller. After construction
// no call allocates. The immediate executor is immediate.h; both call the same nodes.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mudd/graph/gradient_sums.h"
#include "mudd/graph/observed_node.h"
#include "mudd/graph/planner.h"
#include "mudd/graph/workspace.h"
#include "mudd/params/param_store.h"

namespace mudd {

struct ExecutorOptions {
  PlanOptions plan = {};
  int runs_per_step = 1;      // graph runs of one batch, a power of two (contracts 2)
  bool poison = false;        // fills the arena with NaN before every run (tests)
  bool gradient_rows = true;  // store table gradients by row if a step reads few rows; false: whole (tests)
  bool check_finite = false;  // after every node; stops with the name of the first non-finite one
  GradientMemory gradient_memory = {};  // of the flat buffer of GradientSums
  int64_t bucket_bytes = 0;             // above 0, if the store is sharded: gradients are, too (GradientSums)
};

// A callback for final gradients, which runs while backward continues: in the last graph run of a step, or in
// each one if the store is sharded.
class GradientObserver {
 public:
  virtual ~GradientObserver() = default;
  // The total of this use is final: nothing writes it again in the step (in the run, if the store is sharded).
  virtual void finished(const GradientUse& use) = 0;
  // If the store is sharded: backward of a run starts, and will run a position that may reuse a bucket's
  // memory.
  virtual void begins(int /*run*/) {}
  virtual void reaches(int /*position*/) {}
};

class Executor {
 public:
  // Takes ownership of the graph. losses: values whose producers start backward; keep: values to read
  // afterwards.
  Executor(Graph graph, ParamStore& store, std::vector<ValueId> losses, std::vector<ValueId> keep,
           const ExecutorOptions& options);

  // Run the whole schedule in the own workspace: forward, and backward if the graph trains. `run` counts graph
  // runs of the step.
  void run(const StepInput& input, int run, GradientObserver* observer = nullptr);

  // Run one half of a graph run. Several workspaces may be between their halves; the sums over a step need the
  // backward halves in the order of `run`, which the forward half only shows to a NodeObserver.
  void forward(Workspace& workspace, const StepInput& input, int run = 0);
  void backward(Workspace& workspace, int run, GradientObserver* observer = nullptr);

  // Return a value of the own workspace.
  Tensor value(ValueId id) const { return workspace_.value(id); }
  void attach(const std::string& name, void* data) { workspace_.attach(name, data); }
  Workspace& workspace() { return workspace_; }
  // Release the memory of results and gradients until the next run: kept values are lost, and inputs must be
  // set again.
  void release();
  ValueId input(const std::string& name) const;  // kAbsent when the graph has none

  const Graph& graph() const { return graph_; }
  const Plan& plan() const { return plan_; }
  ParamStore& store() const { return store_; }
  int runs_per_step() const { return options_.runs_per_step; }

  // Return the gradients of the parameters after the last run of a step.
  const GradientSums& gradients() const { return gradients_; }
  GradientSums& gradients() { return gradients_; }

  // The times of a node in profiled runs, at the cost of two clock readings per node.
  struct Span {
    int64_t calls = 0;
    double seconds = 0;         // of all calls
    double least = 0;           // of the shortest call
    double begin = 0, end = 0;  // of the last call, on the steady clock
  };
  // One call of a position, on the steady clock.
  struct TimedCall {
    size_t position;
    double begin, end;
  };
  // Start or stop the profile. keep_calls: store every call for a trace.
  void profile(bool on, bool keep_calls = false);
  const std::vector<Span>& spans() const { return spans_; }  // one per position of the schedule
  std::vector<TimedCall> take_calls() { return std::exchange(calls_, {}); }
  const Run& bound(size_t position) const { return workspace_.bound(position); }
  double flops(size_t position) const;  // of its matmuls; 0 for a recomputed node

  // Show each value of the runs that follow to an observer, which may be slow and may allocate; null: none. The
  // gradients of a graph run are then separate from their sum over runs, with the same bits.
  void observe(std::shared_ptr<NodeObserver> observer);
  // Show the inputs' and nodes' values of runs, and the weights, in this way.
  const ShownNodes& shown() const { return shown_; }

  // Return the first non-finite value of the last run with check_finite (NonFiniteCheck); empty: none.
  const std::string& first_non_finite() const { return finite_.found(); }

 private:
  void check_number(int run) const;
  void list_reads();
  std::byte* take_weight_memory();
  void gather(size_t position);
  void observed_position(Workspace& workspace, size_t position, int run);
  bool observed() const { return observer_ || options_.check_finite; }
  void run_position(Workspace& workspace, size_t position);
  void time_position(Workspace& workspace, size_t position, int run);

  Graph graph_;
  ParamStore& store_;
  ExecutorOptions options_;
  Plan plan_;
  Arena booked_weights_;  // of a store without memory (a plan)
  std::byte* weights_;    // gathered weights
  Workspace workspace_;
  GradientSums gradients_;
  std::vector<std::vector<int>> first_reads_;     // by position: parameters that no earlier position reads
  std::vector<std::vector<int>> posts_, awaits_;  // by position: units to request, units to wait for
  ShownNodes shown_;
  std::shared_ptr<NodeObserver> observer_;
  std::vector<float> separate_;  // gradients of a position before they are added to their sums
  NonFiniteCheck finite_;
  std::vector<Span> spans_;
  std::vector<TimedCall> calls_;
  bool profiling_ = false, keeps_calls_ = false;
};

// Add `from` to `to`, element by element (a residual's gradient that could not be passed in place).
void add_into(const Tensor& from, const Tensor& to);

}  // namespace mudd
