// What the planner asks of a graph before it walks it: which nodes take part in backward, which results are made
// again there, and whether anybody still reads a value.
#pragma once

#include <vector>

#include "mudd/graph/graph.h"

namespace mudd {

class GraphFacts {
 public:
  // keep: values that stay readable after the last step; recompute: as PlanOptions.
  GraphFacts(const Graph& graph, const std::vector<ValueId>& losses, const std::vector<ValueId>& keep,
             bool recompute);

  // A node takes part in backward when a loss depends on it and it can pass gradients on.
  bool active(int i) const { return active_[i]; }
  // Its forward runs again in backward, or it recomputes its output from what it saved.
  bool recomputed(int i) const { return recomputed_[i]; }
  bool remade(int i) const { return remade_[i]; }

  bool is_result(ValueId v) const { return v != kAbsent && graph_.values()[v].kind == ValueKind::result; }
  // May node i write its output over input v? Only when no later node reads v.
  bool free_after(int i, ValueId v) const;
  // bf16 where one node alone hands over the gradient of a bf16 value; a sum over several is kept in fp32, as is
  // that of a weight and what a residual passes on.
  DType gradient_type(ValueId v) const;

 private:
  int count() const { return static_cast<int>(graph_.nodes().size()); }
  const GraphNode& entry(int i) const { return graph_.nodes()[i]; }
  const Node& node(int i) const { return *entry(i).node; }
  // A result is read again in backward, and none has to stay anyway.
  bool worth_recomputing(int i) const;
  // Marks the nodes that take part in backward.
  void find_active(const std::vector<ValueId>& losses);
  // Lists the readers of every value and marks those that an active node reads in backward.
  void list_reads();

  // Input number `input` of a node.
  struct Reader {
    int node = 0, input = 0;
  };

  const Graph& graph_;
  std::vector<bool> kept_, active_, recomputed_, remade_;
  std::vector<std::vector<Reader>> readers_;  // per value, ascending
  std::vector<bool> read_in_backward_;        // per value
};

}  // namespace mudd
