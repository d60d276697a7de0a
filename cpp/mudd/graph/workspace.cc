#include "mudd/graph/workspace.h"

#include <cstring>

#include "mudd/base/check.h"

namespace mudd {

Workspace::Workspace(const Graph& graph, const Plan& plan, const ParamStore& store, std::byte* weights)
    : graph_(graph),
      plan_(plan),
      store_(store),
      weights_(weights),
      arena_(plan.arena_bytes, store.booked_only()),
      attached_(graph.values().size(), nullptr),
      runs_(plan.schedule.size()) {
  for (size_t i = 0; i < runs_.size(); ++i) {
    bind(i);
    if (plan_.schedule[i].phase == NodePass::backward) bind_backward(i);
  }
}

Tensor Workspace::tensor(ValueId v, int buffer) const {
  if (v == kAbsent) return {};
  const Value& value = graph_.values()[v];
  Tensor t{.rows = value.spec.rows(),
           .cols = value.spec.cols(),
           .stride = value.spec.cols(),
           .dtype = value.spec.dtype};
  if (value.kind == ValueKind::parameter && buffer == -1) return store_.planes().weights(value.slot);
  else if (value.external) t.data = attached_[v];
  else if (buffer >= 0) {
    t.data = at<std::byte>(buffer);
    t.dtype = plan_.buffers[buffer].dtype;
  }
  return t;
}

// Return the gathered parameter that the node at `position` reads; it has no memory if the node does not read it.
Tensor Workspace::weights_at(size_t position, ValueId v) const {
  const Value& value = graph_.values()[v];
  Tensor t{.rows = value.spec.rows(), .cols = value.spec.cols(), .stride = value.spec.cols()};
  const int at = static_cast<int>(position);
  for (const WeightUnit& unit : plan_.units)
    for (const WeightSource::Wanted& member : unit.members) {
      const Buffer& buffer = plan_.weights[unit.buffer];
      if (member.parameter != value.slot || at < unit.first || at > buffer.last) continue;
      t.data = weights_ + buffer.offset + member.offset;
      t.dtype = member.dtype;
    }
  return t;
}

void Workspace::bind(size_t position) {
  const PlanStep& step = plan_.schedule[position];
  const GraphNode& n = graph_.nodes()[step.node];
  Run& run = runs_[position];
  run.shards_ = &graph_.shards();
  run.step_ = &input_;
  run.experts_ = store_.experts();
  for (size_t j = 0; j < n.inputs.size(); ++j) {
    const ValueId v = n.inputs[j];
    const bool gathered = v != kAbsent && graph_.values()[v].gathered;
    run.in_.push_back(gathered ? weights_at(position, v) : tensor(v, step.in[j]));
    const bool parameter = v != kAbsent && graph_.values()[v].kind == ValueKind::parameter;
    run.packed_plain_.push_back(parameter ? store_.packs().at(graph_.values()[v].slot, Pack::plain) : nullptr);
    run.packed_transposed_.push_back(parameter ? store_.packs().at(graph_.values()[v].slot, Pack::transposed)
                                               : nullptr);
  }
  for (size_t j = 0; j < n.outputs.size(); ++j) run.out_.push_back(tensor(n.outputs[j], step.out[j]));
  for (int b : step.saved) run.saved_.push_back(at<std::byte>(b));
  if (step.scratch >= 0) run.scratch_ = at<std::byte>(step.scratch);
}

void Workspace::bind_backward(size_t position) {
  const PlanStep& step = plan_.schedule[position];
  const GraphNode& n = graph_.nodes()[step.node];
  Run& run = runs_[position];
  for (size_t j = 0; j < n.outputs.size(); ++j)
    run.dout_.push_back(step.dout[j] < 0 ? Tensor{} : tensor(n.outputs[j], step.dout[j]));
  run.accumulate_ = step.accumulate;
  run.sink_.resize(n.inputs.size());
  for (size_t j = 0; j < n.inputs.size(); ++j) {
    run.din_.push_back(step.din[j] < 0 ? Tensor{} : tensor(n.inputs[j], step.din[j]));
    // A weight-like input that is itself a result: its gradient is a sink into its buffer.
    if (!n.node->weight_like(static_cast<int>(j)) || !run.din_[j]) continue;
    run.sink_[j].out = run.din_[j].f32();
    if (step.accumulate[j]) run.sink_[j].add[run.sink_[j].n_add++] = run.din_[j].f32();
  }
}

void Workspace::begin(const StepInput& input) {
  check(!store_.booked_only(), "executor", "run: this model is only booked, for planning");
  check(input.cache_length >= 0, "executor", "cache_length: expected 0 or more, got ", input.cache_length);
  for (ValueId v : graph_.inputs())
    check(!graph_.values()[v].external || attached_[v], "executor", graph_.values()[v].name,
          ": nothing is attached");
  input_ = input;
  forward_done_ = false;
}

void Workspace::begin_backward() {
  check(forward_done_, "executor", "backward: expected a workspace after forward");
  forward_done_ = false;
}

void Workspace::poison() {
  for (const Buffer& b : plan_.buffers)
    if (b.kind != BufferKind::input) std::memset(arena_.data() + b.offset, 0xff, b.bytes);
}

Tensor Workspace::value(ValueId id) const {
  check(!store_.booked_only(), "executor", "value: this model is only booked, for planning");
  const Value& v = graph_.values().at(id);
  const int buffer = v.kind == ValueKind::input ? -2 : plan_.final_buffer[id];
  if (v.kind == ValueKind::parameter) return tensor(id, -1);
  if (v.kind == ValueKind::input) {
    for (const Buffer& b : plan_.buffers)
      if (b.kind == BufferKind::input && b.what == v.name) {
        Tensor t = tensor(id, -2);
        t.data = arena_.data() + b.offset;
        return t;
      }
  }
  check(buffer >= 0, "executor", "value: '", v.name, "' was not kept");
  return tensor(id, buffer);
}

void Workspace::attach(const std::string& name, void* data) {
  ValueId v = kAbsent;
  for (ValueId input : graph_.inputs())
    if (graph_.values()[input].name == name && graph_.values()[input].external) v = input;
  check(v != kAbsent, "executor", "attach: no external input is called '", name, "'");
  attached_[v] = data;
  for (size_t i = 0; i < runs_.size(); ++i) {
    const std::vector<ValueId>& inputs = graph_.nodes()[plan_.schedule[i].node].inputs;
    for (size_t j = 0; j < inputs.size(); ++j)
      if (inputs[j] == v) runs_[i].in_[j].data = data;
  }
}

void Workspace::release() {
  arena_.release();
  forward_done_ = false;
}

}  // namespace mudd
