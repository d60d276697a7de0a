// The weights that a graph gathers from their owners, with their schedule positions and memory.
#include <algorithm>

#include "mudd/base/arena.h"
#include "mudd/graph/planner.h"

namespace mudd {
namespace {

// Weights of one layer are gathered together, others alone.
std::string layer_of(const std::string& name) {
  if (name.rfind("blocks.", 0) != 0) return name;
  return name.substr(0, name.find('.', sizeof("blocks.")));
}

class Gathers {
 public:
  Gathers(const Graph& graph, Plan& plan) : graph_(graph), plan_(plan) {}

  // Add the weights that positions [begin, end) read.
  void add(int begin, int end) {
    open_.assign(graph_.values().size(), -1);
    for (int at = begin; at < end; ++at) {
      const PlanStep& step = plan_.schedule[at];
      const GraphNode& n = graph_.nodes()[step.node];
      for (size_t j = 0; j < n.inputs.size(); ++j)
        if (reads(step, n, static_cast<int>(j))) read(n.inputs[j], at);
    }
  }

  // Start a unit's gather when the one before it is first read.
  void set_posts() {
    for (size_t u = 0; u < plan_.units.size(); ++u) {
      WeightUnit& unit = plan_.units[u];
      unit.post = u > 0 ? plan_.units[u - 1].first : 0;
      plan_.weights[unit.buffer].first = unit.post;
    }
  }

 private:
  bool reads(const PlanStep& step, const GraphNode& n, int j) const {
    const ValueId v = n.inputs[j];
    if (v == kAbsent || !graph_.values()[v].gathered || step.phase == NodePass::remake) return false;
    return step.phase == NodePass::forward || n.node->backward_reads_input(j);
  }

  void read(ValueId v, int at) {
    if (open_[v] < 0) open(v, at);
    plan_.weights[plan_.units[open_[v]].buffer].last = at;
  }

  void open(ValueId v, int at) {
    const Value& value = graph_.values()[v];
    const std::string layer = layer_of(value.name);
    if (plan_.units.empty() || plan_.weights[plan_.units.back().buffer].what != layer ||
        std::find(open_.begin(), open_.end(), static_cast<int>(plan_.units.size()) - 1) == open_.end()) {
      plan_.units.push_back({.first = at, .buffer = static_cast<int>(plan_.weights.size())});
      plan_.weights.push_back({.first = at, .last = at, .what = layer, .kind = BufferKind::weights});
    }
    WeightUnit& unit = plan_.units.back();
    Buffer& buffer = plan_.weights[unit.buffer];
    const DType dtype = type_for_readers(v);
    unit.members.push_back({value.slot, buffer.bytes, dtype});
    buffer.bytes += aligned(value.spec.size() * size_of(dtype));
    open_[v] = static_cast<int>(plan_.units.size()) - 1;
  }

  // Rounding twice equals rounding once: matrices that all readers round to bf16 are gathered as bf16.
  DType type_for_readers(ValueId v) const {
    const Value& value = graph_.values()[v];
    if (value.stored != DType::f32 || graph_.compute() != DType::bf16) return value.stored;
    for (const GraphNode& n : graph_.nodes())
      for (size_t j = 0; j < n.inputs.size(); ++j) {
        const int number = static_cast<int>(j);
        if (n.inputs[j] == v && (!n.node->reads_stored(number) || n.node->gradient_rows(number) > 0))
          return DType::f32;
      }
    return DType::bf16;
  }

  const Graph& graph_;
  Plan& plan_;
  std::vector<int> open_;  // per value: its unit in this part of the schedule; -1: none yet
};

}  // namespace

void plan_gathers(const Graph& graph, const PlanOptions& options, Plan& plan) {
  Gathers gathers(graph, plan);
  gathers.add(0, plan.backward_begin);
  gathers.add(plan.backward_begin, static_cast<int>(plan.schedule.size()));
  gathers.set_posts();
  if (!plan.weights.empty()) plan.weight_bytes = assign_offsets(plan.weights, options);
}

}  // namespace mudd
