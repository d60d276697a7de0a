#include "mudd/graph/graph.h"

#include <algorithm>

#include "mudd/base/check.h"

namespace mudd {

Graph::Graph(bool training, Shards shards, DType compute, int expert_ranks, double expert_room)
    : training_(training),
      shards_(std::move(shards)),
      compute_(compute),
      expert_ranks_(expert_ranks),
      expert_room_(expert_room) {
  check(compute == DType::f32 || compute == DType::bf16, "graph", "compute: expected float32 or bfloat16, got ",
        name_of(compute));
}

ValueId Graph::add(Value value) {
  values_.push_back(std::move(value));
  uses_.push_back(0);
  return static_cast<ValueId>(values_.size()) - 1;
}

ValueId Graph::input(const std::string& name, TensorSpec spec, bool external) {
  for (ValueId v : inputs_) check(values_[v].name != name, "graph", "input: '", name, "' exists already");
  Value value{.spec = std::move(spec), .kind = ValueKind::input, .name = name};
  value.slot = static_cast<int>(inputs_.size());
  value.external = external;
  const ValueId id = add(std::move(value));
  inputs_.push_back(id);
  return id;
}

ValueId Graph::parameter(const std::string& name, TensorSpec spec, int slot, bool trainable, bool gathered,
                         DType stored, bool packed_at_use) {
  if (std::ssize(parameters_) <= slot) parameters_.resize(slot + 1, kAbsent);
  if (parameters_[slot] != kAbsent) return parameters_[slot];
  Value value{.spec = std::move(spec), .kind = ValueKind::parameter, .name = name};
  value.slot = slot;
  value.wants_gradient = training_ && trainable;
  value.gathered = gathered;
  value.stored = stored;
  value.packed_at_use = packed_at_use;
  return parameters_[slot] = add(std::move(value));
}

std::vector<ValueId> Graph::apply(const std::string& op, const Attributes& attributes,
                                  const std::vector<ValueId>& inputs, const std::string& label) {
  return apply(make_node(op, attributes), inputs, label);
}

std::vector<ValueId> Graph::apply(std::unique_ptr<Node> node, const std::vector<ValueId>& inputs,
                                  const std::string& label) {
  GraphNode entry;
  entry.label = label.empty() ? node->op() : label + ":" + node->op();
  entry.inputs = inputs;
  Inference& needs = entry.needs;
  needs.training_ = training_;
  needs.compute_ = compute_;
  needs.shards_ = &shards_;
  needs.expert_ranks_ = expert_ranks_;
  needs.expert_room_ = expert_room_;
  std::vector<TensorSpec> seen(inputs.size());  // the inputs as the node sees them: fp32 for a converted copy
  bool wants = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ValueId v = inputs[i];
    check(v == kAbsent || (v >= 0 && v < static_cast<ValueId>(values_.size())), "graph", entry.label,
          ": input value ", v, " is not of this graph");
    const bool given = v != kAbsent;
    if (given) seen[i] = values_[v].spec;
    if (given && (!node->native_bf16() || node->weight_like(static_cast<int>(i))) && seen[i].dtype == DType::bf16)
      seen[i].dtype = DType::f32;
    needs.inputs_.push_back(given ? &seen[i] : nullptr);
    const bool parameter = given && values_[v].kind == ValueKind::parameter;
    needs.parameter_.push_back(parameter);
    needs.gathered_.push_back(parameter && (values_[v].gathered || values_[v].packed_at_use));
    needs.wants_.push_back(given && values_[v].wants_gradient);
    wants = wants || needs.wants_.back();
    const auto earlier =
        std::count(inputs.begin(), inputs.begin() + static_cast<ptrdiff_t>(i), v);  // of this node
    entry.parameter_use.push_back(parameter ? uses_[v] + static_cast<int>(earlier) : -1);
  }
  node->infer(needs);
  needs.inputs_.clear();  // pointers into `seen`
  entry.node = std::move(node);
  for (size_t i = 0; i < needs.outputs_.size(); ++i) {
    Value out{.spec = needs.outputs_[i], .kind = ValueKind::result, .name = entry.label + "." + std::to_string(i)};
    out.producer = static_cast<int>(nodes_.size());
    out.output = static_cast<int>(i);
    if (stored_bf16(needs, *entry.node, static_cast<int>(i))) out.spec.dtype = DType::bf16;
    out.wants_gradient = wants && out.spec.dtype != DType::i32;  // indices have none
    entry.outputs.push_back(add(std::move(out)));
  }
  for (ValueId v : inputs)
    if (v != kAbsent) ++uses_[v];
  nodes_.push_back(std::move(entry));
  return nodes_.back().outputs;
}

std::string Graph::text() const {
  std::string s;
  for (const GraphNode& n : nodes_) {
    s += n.label + "(";
    for (size_t i = 0; i < n.inputs.size(); ++i)
      s += (i ? ", " : "") + (n.inputs[i] == kAbsent ? std::string("-") : values_[n.inputs[i]].name);
    s += ")";
    for (ValueId v : n.outputs) s += " " + values_[v].spec.text();
    s += "\n";
  }
  return s;
}

}  // namespace mudd
