// Executor: runs a plan (docs/architecture.md), in its own workspace or in ones of the caller. After construction
// no call allocates. The immediate executor is immediate.h; both call the same nodes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "mudd/graph/gradient_sums.h"
#include "mudd/graph/planner.h"
#include "mudd/graph/workspace.h"
#include "mudd/params/param_store.h"

namespace mudd {

struct ExecutorOptions {
  PlanOptions plan = {};
  int runs_per_step = 1;      // graph runs that make up one batch, a power of two (contracts 2)
  bool poison = false;        // fills the arena with NaN before every run (tests)
  bool gradient_rows = true;  // of tables that a step reads few rows of only those are kept; false: all (tests)
  bool check_finite = false;  // after every node; stops with the name of the first non-finite one
  GradientMemory gradient_memory = {};  // of the flat plane of GradientSums
  int64_t bucket_bytes = 0;             // more than 0, where the store is cut: gradients are, too (GradientSums)
};

// Learns in the last graph run of a step, where the store is cut in each, while backward goes on, which gradients
// are final.
class GradientObserver {
 public:
  virtual ~GradientObserver() = default;
  // The total of this use is final: nothing in the step, where the store is cut in the run, writes it again.
  virtual void finished(const GradientUse& use) = 0;
  // Where the store is cut: backward of a run begins, and is about to run a position, which may take a bucket's
  // memory.
  virtual void begins(int /*run*/) {}
  virtual void reaches(int /*position*/) {}
};

class Executor {
 public:
  // Takes the graph. losses: values whose producers start backward; keep: values to read afterwards.
  Executor(Graph graph, ParamStore& store, std::vector<ValueId> losses, std::vector<ValueId> keep,
           const ExecutorOptions& options);

  // Runs the whole schedule in its own workspace: forward, and backward when the graph trains. `run` counts graph
  // runs of the step.
  void run(const StepInput& input, int run, GradientObserver* observer = nullptr);

  // The two halves of a graph run. Several workspaces may stand between them; the sums over a step take the
  // backward halves in the order of `run`.
  void forward(Workspace& workspace, const StepInput& input);
  void backward(Workspace& workspace, int run, GradientObserver* observer = nullptr);

  // Of its own workspace.
  Tensor value(ValueId id) const { return workspace_.value(id); }
  void attach(const std::string& name, void* data) { workspace_.attach(name, data); }
  Workspace& workspace() { return workspace_; }
  // Gives the memory of results and gradients back until the next run: kept values are gone, inputs are to be set.
  void release();
  ValueId input(const std::string& name) const;  // kAbsent when the graph has none

  const Graph& graph() const { return graph_; }
  const Plan& plan() const { return plan_; }
  ParamStore& store() const { return store_; }
  int runs_per_step() const { return options_.runs_per_step; }

  // Gradients of the parameters after the last run of a step.
  const GradientSums& gradients() const { return gradients_; }
  GradientSums& gradients() { return gradients_; }

  // Times every node of the runs that follow, or stops that. Costs two clock readings a node.
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
  // keep_calls: every call is kept until it is taken, for a trace.
  void profile(bool on, bool keep_calls = false);
  const std::vector<Span>& spans() const { return spans_; }  // one per position of the schedule
  std::vector<TimedCall> take_calls() { return std::exchange(calls_, {}); }
  const Run& bound(size_t position) const { return workspace_.bound(position); }
  double flops(size_t position) const;  // of the matmuls there; 0 for what is recomputed

  // Label of the first node that gave a non-finite number in the last run with check_finite; empty: none.
  const std::string& first_non_finite() const { return first_non_finite_; }

 private:
  void check_number(int run) const;
  void list_reads();
  std::byte* take_weight_memory();
  void gather(size_t position);
  void note_non_finite(const PlanStep& step, const Run& run);
  void run_position(Workspace& workspace, size_t position);
  void time_position(Workspace& workspace, size_t position);

  Graph graph_;
  ParamStore& store_;
  ExecutorOptions options_;
  Plan plan_;
  Arena booked_weights_;  // of a store that is only booked
  std::byte* weights_;    // what is gathered
  Workspace workspace_;
  GradientSums gradients_;
  std::vector<std::vector<int>> first_reads_;     // by position: parameters that no earlier one reads
  std::vector<std::vector<int>> posts_, awaits_;  // by position: units of weights
  std::string first_non_finite_;
  std::vector<Span> spans_;
  std::vector<TimedCall> calls_;
  bool profiling_ = false, keeps_calls_ = false;
};

// to += from, element by element (a residual's gradient that could not be handed on in place).
void add_into(const Tensor& from, const Tensor& to);

}  // namespace mudd
