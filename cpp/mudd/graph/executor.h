// Executor: runs a plan over its arena, the planned half of design.md decision 1. After construction no call
// allocates. The immediate half is immediate.h; both call the same nodes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mudd/base/arena.h"
#include "mudd/graph/gradient_sums.h"
#include "mudd/graph/planner.h"
#include "mudd/params/param_store.h"

namespace mudd {

struct ExecutorOptions {
  PlanOptions plan;
  int runs_per_step = 1;      // graph runs that make up one batch, a power of two (contracts 2)
  bool poison = false;        // fills the arena with NaN before every run (tests)
  bool gradient_rows = true;  // of tables that a step reads few rows of only those are kept; false: all (tests)
  bool check_finite = false;  // after every node; stops with the name of the first non-finite one
};

class Executor {
 public:
  // Takes the graph. losses: values whose producers start backward; keep: values to read afterwards.
  Executor(Graph graph, ParamStore& store, std::vector<ValueId> losses, std::vector<ValueId> keep,
           const ExecutorOptions& options);

  // Runs the whole schedule: forward, and backward when the graph trains. `run` counts graph runs of the step.
  void run(const StepInput& input, int run);

  // The memory of an input (to be filled before run) or of a kept value.
  Tensor value(ValueId id) const;
  // Gives the memory of results and gradients back until the next run: kept values are gone, inputs are to be set.
  void release();
  // Gives an external input its memory (contiguous, of the declared shape); it must outlive the executor.
  void attach(const std::string& name, void* data);
  ValueId input(const std::string& name) const;  // kAbsent when the graph has none

  const Graph& graph() const { return graph_; }
  const Plan& plan() const { return plan_; }
  ParamStore& store() const { return store_; }
  int runs_per_step() const { return options_.runs_per_step; }

  // Gradients of the parameters after the last run of a step.
  const GradientSums& gradients() const { return gradients_; }

  // Times every node of the runs that follow, or stops that. Costs two clock readings a node.
  struct Span {
    int64_t calls = 0;
    double seconds = 0;         // of all calls
    double least = 0;           // of the shortest call
    double begin = 0, end = 0;  // of the last call, on the steady clock
  };
  void profile(bool on);
  const std::vector<Span>& spans() const { return spans_; }  // one per position of the schedule
  const Run& bound(size_t position) const { return runs_[position]; }

  // Label of the first node that gave a non-finite number in the last run with check_finite; empty: none.
  const std::string& first_non_finite() const { return first_non_finite_; }

 private:
  void check_parameters() const;
  Tensor tensor(ValueId v, int buffer) const;
  template <class T>
  T* at(int buffer) const {
    return reinterpret_cast<T*>(arena_.data() + plan_.buffers[buffer].offset);
  }
  void bind(size_t position);
  void bind_sinks(int run);
  void note_non_finite(const PlanStep& step, const Run& run);
  void run_position(size_t position);

  Graph graph_;
  ParamStore& store_;
  ExecutorOptions options_;
  Plan plan_;
  Arena arena_;
  GradientSums gradients_;
  std::vector<void*> attached_;  // per value
  std::vector<Run> runs_;        // one per schedule position
  StepInput input_;
  std::string first_non_finite_;
  std::vector<Span> spans_;
  bool profiling_ = false;
};

// to += from, element by element (a residual's gradient that could not be handed on in place).
void add_into(const Tensor& from, const Tensor& to);

}  // namespace mudd
