// Workspace: the memory of one graph run. It has the arena of a plan, the inputs with memory of the caller, and
// every position of the schedule bound to both. A plan may have several, each with a graph run in progress.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "mudd/base/arena.h"
#include "mudd/graph/planner.h"
#include "mudd/params/param_store.h"

namespace mudd {

class Workspace {
 public:
  // The three must outlive it. weights: memory for gathered weights.
  Workspace(const Graph& graph, const Plan& plan, const ParamStore& store, std::byte* weights = nullptr);
  Workspace(const Workspace&) = delete;  // the bound runs point at the fields of the step
  Workspace& operator=(const Workspace&) = delete;

  // Return the memory of an input (to be filled before a run) or of a kept value.
  Tensor value(ValueId id) const;
  // Set the memory of an external input (contiguous, of the declared shape); it must outlive the workspace.
  void attach(const std::string& name, void* data);
  // Release the memory until the next run: kept values are lost, and inputs must be set again.
  void release();

  // Start a graph run: check that everything is attached and copy the fields of the step.
  void begin(const StepInput& input);
  void end_forward() { forward_done_ = true; }
  void begin_backward();  // once after each forward
  // Fill everything but the inputs with NaN (tests).
  void poison();

  Run& bound(size_t position) { return runs_[position]; }
  const Run& bound(size_t position) const { return runs_[position]; }
  // Return value v, or its gradient, in a buffer of the plan; -1: the memory of a parameter or an attached
  // input.
  Tensor tensor(ValueId v, int buffer) const;
  template <class T>
  T* at(int buffer) const {
    return reinterpret_cast<T*>(arena_.data() + plan_.buffers[buffer].offset);
  }

 private:
  void bind(size_t position);
  Tensor weights_at(size_t position, ValueId v) const;
  void bind_backward(size_t position);

  const Graph& graph_;
  const Plan& plan_;
  const ParamStore& store_;
  std::byte* weights_;  // gathered
  Arena arena_;
  std::vector<void*> attached_;  // per value
  std::vector<Run> runs_;        // one per schedule position
  StepInput input_;
  bool forward_done_ = false;
};

}  // namespace mudd
