// The facts about a graph that the planner needs first: which nodes take part in backward, which results are
// recomputed there, and whether a value has later readers.
#pragma once

#include <vector>

#include "mudd/graph/graph.h"

namespace mudd {

class GraphFacts {
 public:
  // keep: values that stay readable after the last step; recompute: see PlanOptions.
  GraphFacts(const Graph& graph, const std::vector<ValueId>& losses, const std::vector<ValueId>& keep,
             bool recompute);

  // Return true if a loss depends on the node and it can pass gradients on: it takes part in backward.
  bool active(int i) const { return active_[i]; }
  // Return true if forward runs again in backward, or if the node recomputes its output from its saved bytes.
  bool recomputed(int i) const { return recomputed_[i]; }
  bool remade(int i) const { return remade_[i]; }

  bool is_result(ValueId v) const { return v != kAbsent && graph_.values()[v].kind == ValueKind::result; }
  // Return true if node i may overwrite input v with its output: no later node reads v.
  bool free_after(int i, ValueId v) const;
  // Return bf16 if a single node passes the gradient of a bf16 value on. The sum over several nodes, the
  // gradient of a weight and a residual's passed gradient are fp32.
  DType gradient_type(ValueId v) const;

 private:
  int count() const { return static_cast<int>(graph_.nodes().size()); }
  const GraphNode& entry(int i) const { return graph_.nodes()[i]; }
  const Node& node(int i) const { return *entry(i).node; }
  // Return true if backward reads a result, and no result has to stay anyway.
  bool worth_recomputing(int i) const;
  // Mark the nodes that take part in backward.
  void find_active(const std::vector<ValueId>& losses);
  // List the readers of every value and mark the values that an active node reads in backward.
  void list_reads();

  // An input of a node, by index.
  struct Reader {
    int node = 0, input = 0;
  };

  const Graph& graph_;
  std::vector<bool> kept_, active_, recomputed_, remade_;
  std::vector<std::vector<Reader>> readers_;  // per value, ascending
  std::vector<bool> read_in_backward_;        // per value
};

}  // namespace mudd
