#include "mudd/graph/graph_facts.h"

namespace mudd {

GraphFacts::GraphFacts(const Graph& graph, const std::vector<ValueId>& losses, const std::vector<ValueId>& keep,
                       bool recompute)
    : graph_(graph),
      kept_(graph.values().size(), false),
      active_(graph.nodes().size(), false),
      recomputed_(graph.nodes().size(), false),
      remade_(graph.nodes().size(), false),
      readers_(graph.values().size()),
      read_in_backward_(graph.values().size(), false) {
  for (ValueId v : keep) kept_[v] = true;
  if (graph_.training()) find_active(losses);
  list_reads();
  for (int i = 0; i < count(); ++i) {
    remade_[i] = active_[i] && node(i).remakes_output() && worth_recomputing(i);
    recomputed_[i] = recompute && active_[i] && node(i).cheap_to_recompute() && worth_recomputing(i);
  }
}

void GraphFacts::find_active(const std::vector<ValueId>& losses) {
  std::vector<bool> reached(graph_.values().size(), false);
  for (ValueId v : losses) reached[v] = true;
  for (int i = count() - 1; i >= 0; --i) {
    for (ValueId v : entry(i).outputs)
      active_[i] = active_[i] || (reached[v] && graph_.values()[v].wants_gradient);
    if (active_[i])
      for (ValueId v : entry(i).inputs)
        if (v != kAbsent) reached[v] = true;
  }
}

bool GraphFacts::worth_recomputing(int i) const {
  bool read = false;
  for (ValueId v : entry(i).outputs) {
    if (kept_[v]) return false;
    read = read || read_in_backward_[v];
  }
  return read;
}

void GraphFacts::list_reads() {
  for (int i = 0; i < count(); ++i) {
    for (size_t j = 0; j < entry(i).inputs.size(); ++j) {
      const ValueId v = entry(i).inputs[j];
      const int number = static_cast<int>(j);
      if (v == kAbsent) continue;
      readers_[v].push_back({i, number});
      if (active_[i] && node(i).backward_reads_input(number)) read_in_backward_[v] = true;
    }
    for (size_t j = 0; j < entry(i).outputs.size(); ++j)
      if (active_[i] && node(i).backward_reads_output(static_cast<int>(j)))
        read_in_backward_[entry(i).outputs[j]] = true;
  }
}

bool GraphFacts::free_after(int i, ValueId v) const {
  if (!is_result(v) || kept_[v] || read_in_backward_[v]) return false;
  int uses = 0;
  for (ValueId w : entry(i).inputs) uses += w == v;
  if (uses != 1) return false;
  for (const Reader& r : readers_[v])
    if (r.node > i || (r.node != i && recomputed_[r.node])) return false;
  const int producer = graph_.values()[v].producer;
  return !recomputed_[producer] && !recomputed_[i];
}

DType GraphFacts::gradient_type(ValueId v) const {
  if (graph_.values()[v].spec.dtype != DType::bf16) return graph_.values()[v].spec.dtype;
  if (readers_[v].size() != 1) return DType::f32;
  const Reader& only = readers_[v].front();
  const bool plain = only.input != node(only.node).passes_gradient() && !node(only.node).weight_like(only.input);
  return plain ? DType::bf16 : DType::f32;
}

}  // namespace mudd
