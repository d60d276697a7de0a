// Workspace: what one graph run works in. The arena of a plan, the inputs that the caller gave memory, and every
// position of the schedule bound to both. A plan may have several, with a graph run under way in each.
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
  // The three outlive it. weights: memory for what is gathered.
  Workspace(const Graph& graph, const Plan& plan, const ParamStore& store, std::byte* weights = nullptr);
  Workspace(const Workspace&) = delete;  // the bound runs point at the fields of the step
  Workspace& operator=(const Workspace&) = delete;

  // The memory of an input (to be filled before a run) or of a kept value.
  Tensor value(ValueId id) const;
  // Gives an external input its memory (contiguous, of the declared shape); it must outlive the workspace.
  void attach(const std::string& name, void* data);
  // Releases the memory until the next run: kept values are gone, inputs are to be set.
  void release();

  // Starts a graph run: everything is attached, the fields of the step are taken over.
  void begin(const StepInput& input);
  void end_forward() { forward_done_ = true; }
  void begin_backward();  // once after each forward
  // Fills everything but the inputs with NaN (tests).
  void poison();

  Run& bound(size_t position) { return runs_[position]; }
  const Run& bound(size_t position) const { return runs_[position]; }
  // Value v, or its gradient, in a buffer of the plan; -1: where a parameter or an attached input lies.
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
