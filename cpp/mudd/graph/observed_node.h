// The values that an executor shows to a NodeObserver: the inputs of a graph run, and the results of each node.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "mudd/graph/node_observer.h"
#include "mudd/graph/planner.h"
#include "mudd/graph/workspace.h"

namespace mudd {

// Shows the values of a plan to an observer.
class ShownNodes {
 public:
  // All must outlive it, the workspace each call.
  ShownNodes(const Graph& graph, const Plan& plan, const ParamStore& store);

  void inputs(const Workspace& workspace, int run, int64_t first_sample, NodeObserver& observer) const;
  // Show the results, or the gradients, of the node at `position` after it has run.
  void node(const Workspace& workspace, size_t position, int run, NodeObserver& observer) const;
  // Show the sum of a weight's gradient over the graph runs so far.
  void sum(const GradientUse& use, float* total, int64_t elements, int run, NodeObserver& observer) const;
  // Return the elements of a use's gradient in `sink`.
  int64_t elements(const GradientUse& use, const GradSink& sink) const;
  // Show the local weights.
  void weights(NodeObserver& observer) const;

 private:
  struct Shown;
  void results(const Workspace& workspace, size_t position, Observed event, NodeObserver& observer) const;
  void gradients(const Workspace& workspace, size_t position, const Observed& event, NodeObserver& observer) const;
  void weight_gradient(const GradientUse& use, const GradSink& sink, Observed event, NodeObserver& observer) const;
  Tensor passed(const Workspace& workspace, size_t position) const;

  const Graph& graph_;
  const Plan& plan_;
  const ParamStore& store_;
  std::vector<std::string> labels_;                    // of each node; a repeated one has a suffix
  std::vector<std::vector<const GradientUse*>> uses_;  // by position
};

}  // namespace mudd
