#include "mudd/graph/graph_facts.h"

namespace mudd {

GraphFacts::GraphFacts(const Graph& graph, const std::vector<ValueId>& losses, const std::vector<ValueId>& keep,
                       bool recompute)
    : graph_(graph),
      kept_(graph.values().size(), false),
      active_(graph.nodes().size(), false),
      recomputed_(graph.nodes().size(), false),
      remade_(graph.nodes().size(), false) {
  for (ValueId v : keep) kept_[v] = true;
  if (!graph_.training()) return;
  std::vector<bool> reached(graph_.values().size(), false);
  for (ValueId v : losses) reached[v] = true;
  for (int i = count() - 1; i >= 0; --i) {
    for (ValueId v : entry(i).outputs)
      active_[i] = active_[i] || (reached[v] && graph_.values()[v].wants_gradient);
    if (active_[i])
      for (ValueId v : entry(i).inputs)
        if (v != kAbsent) reached[v] = true;
  }
  for (int i = 0; i < count(); ++i) {
    remade_[i] = active_[i] && node(i).remakes_output() && worth_recomputing(i);
    recomputed_[i] = recompute && active_[i] && node(i).cheap_to_recompute() && worth_recomputing(i);
  }
}

bool GraphFacts::worth_recomputing(int i) const {
  bool read = false;
  for (ValueId v : entry(i).outputs) {
    if (kept_[v]) return false;
    read = read || read_in_backward(v);
  }
  return read;
}

bool GraphFacts::read_in_backward(ValueId v) const {
  for (int i = 0; i < count(); ++i) {
    if (!active_[i]) continue;
    for (size_t j = 0; j < entry(i).inputs.size(); ++j)
      if (entry(i).inputs[j] == v && node(i).backward_reads_input(static_cast<int>(j))) return true;
    for (size_t j = 0; j < entry(i).outputs.size(); ++j)
      if (entry(i).outputs[j] == v && node(i).backward_reads_output(static_cast<int>(j))) return true;
  }
  return false;
}

bool GraphFacts::free_after(int i, ValueId v) const {
  if (!is_result(v) || kept_[v] || read_in_backward(v)) return false;
  int uses = 0;
  for (ValueId w : entry(i).inputs) uses += w == v;
  if (uses != 1) return false;
  for (int c = 0; c < count(); ++c)
    for (ValueId w : entry(c).inputs)
      if (w == v && c != i && (c > i || recomputed_[c])) return false;
  const int producer = graph_.values()[v].producer;
  return !recomputed_[producer] && !recomputed_[i];
}

DType GraphFacts::gradient_type(ValueId v) const {
  if (graph_.values()[v].spec.dtype != DType::bf16) return graph_.values()[v].spec.dtype;
  int readers = 0;
  bool plain = true;
  for (int i = 0; i < count(); ++i)
    for (size_t j = 0; j < entry(i).inputs.size(); ++j) {
      if (entry(i).inputs[j] != v) continue;
      const int number = static_cast<int>(j);
      ++readers;
      plain = plain && number != node(i).passes_gradient() && !node(i).weight_like(number);
    }
  return readers == 1 && plain ? DType::bf16 : DType::f32;
}

}  // namespace mudd
