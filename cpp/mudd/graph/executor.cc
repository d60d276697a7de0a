#include "mudd/graph/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "mudd/base/check.h"
#include "mudd/base/row_tasks.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/kernels/reduce/reduce.h"

namespace mudd {
namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Integers and the doubles of a loss are not looked at: what made them is.
bool fine(const Tensor& t) { return !t || (t.dtype != DType::f32 && t.dtype != DType::bf16) || all_finite(t); }

}  // namespace

void add_into(const Tensor& from, const Tensor& to) {
  parallel_rows(to.rows, to.cols, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* a = from.f32() + r * from.stride;
      float* b = to.f32() + r * to.stride;
      for (int64_t c = 0; c < to.cols; ++c) b[c] += a[c];
    }
  });
}

Executor::Executor(Graph graph, ParamStore& store, std::vector<ValueId> losses, std::vector<ValueId> keep,
                   const ExecutorOptions& options)
    : graph_(std::move(graph)), store_(store), options_(options) {
  const int runs = options_.runs_per_step;
  check(runs >= 1 && (runs & (runs - 1)) == 0, "executor", "runs_per_step: expected a power of two, got ", runs);
  check_parameters();
  plan_ = make_plan(graph_, losses, keep, options_.plan);
  for (const GraphNode& n : graph_.nodes())
    for (const Inference::PackRequest& p : n.needs.packs_) {
      const ValueId v = n.inputs[p.input];
      if (v != kAbsent && graph_.values()[v].kind == ValueKind::parameter)
        store_.request_pack(graph_.values()[v].slot, p.how);
    }
  arena_ = Arena(plan_.arena_bytes, store_.booked_only());
  attached_.assign(graph_.values().size(), nullptr);
  if (graph_.training()) gradients_ = GradientSums(graph_, plan_, store_, runs, options_.gradient_rows);
  runs_.resize(plan_.schedule.size());
  for (size_t i = 0; i < runs_.size(); ++i) bind(i);
}

// Parameters of the graph are those of the store, which has memory for them.
void Executor::check_parameters() const {
  check(store_.allocated(), "executor", "parameters: expected an allocated store");
  for (const Value& value : graph_.values()) {
    if (value.kind != ValueKind::parameter) continue;
    check(value.slot < store_.count() && store_.at(value.slot).name == value.name &&
              store_.at(value.slot).shape == value.spec.shape,
          "executor", "parameters: '", value.name, "' ", value.spec.text(), " is not this store's");
  }
}

Tensor Executor::tensor(ValueId v, int buffer) const {
  if (v == kAbsent) return {};
  const Value& value = graph_.values()[v];
  Tensor t{.rows = value.spec.rows(),
           .cols = value.spec.cols(),
           .stride = value.spec.cols(),
           .dtype = value.spec.dtype};
  if (value.kind == ValueKind::parameter && buffer == -1) t.data = store_.master(value.slot);
  else if (value.external) t.data = attached_[v];
  else if (buffer >= 0) {
    t.data = arena_.data() + plan_.buffers[buffer].offset;
    t.dtype = plan_.buffers[buffer].dtype;
  }
  return t;
}

void Executor::bind(size_t position) {
  const PlanStep& step = plan_.schedule[position];
  const GraphNode& n = graph_.nodes()[step.node];
  Run& run = runs_[position];
  run.shards_ = &graph_.shards();
  run.step_ = &input_;
  for (size_t j = 0; j < n.inputs.size(); ++j) {
    const ValueId v = n.inputs[j];
    run.in_.push_back(tensor(v, step.in[j]));
    const bool parameter = v != kAbsent && graph_.values()[v].kind == ValueKind::parameter;
    run.packed_plain_.push_back(parameter ? store_.packed(graph_.values()[v].slot, Pack::plain) : nullptr);
    run.packed_transposed_.push_back(parameter ? store_.packed(graph_.values()[v].slot, Pack::transposed)
                                               : nullptr);
  }
  for (size_t j = 0; j < n.outputs.size(); ++j) run.out_.push_back(tensor(n.outputs[j], step.out[j]));
  for (int b : step.saved) run.saved_.push_back(arena_.data() + plan_.buffers[b].offset);
  if (step.scratch >= 0) run.scratch_ = arena_.data() + plan_.buffers[step.scratch].offset;
  if (step.phase != Phase::backward) return;
  for (size_t j = 0; j < n.outputs.size(); ++j)
    run.dout_.push_back(step.dout[j] < 0 ? Tensor{} : tensor(n.outputs[j], step.dout[j]));
  run.accumulate_ = step.accumulate;
  run.sink_.resize(n.inputs.size());
  for (size_t j = 0; j < n.inputs.size(); ++j) {
    run.din_.push_back(step.din[j] < 0 ? Tensor{} : tensor(n.inputs[j], step.din[j]));
    // A weight-like input that is itself a result: its gradient is a sink onto its own buffer.
    if (!n.node->weight_like(static_cast<int>(j)) || !run.din_[j]) continue;
    run.sink_[j].out = run.din_[j].f32();
    if (step.accumulate[j]) run.sink_[j].add[run.sink_[j].n_add++] = run.din_[j].f32();
  }
}

void Executor::bind_sinks(int run) {
  for (size_t i = 0; i < runs_.size(); ++i) {
    const PlanStep& step = plan_.schedule[i];
    if (step.phase != Phase::backward) continue;
    const GraphNode& n = graph_.nodes()[step.node];
    for (size_t j = 0; j < n.inputs.size(); ++j)
      if (n.parameter_use[j] >= 0 && graph_.values()[n.inputs[j]].wants_gradient)
        gradients_.point(runs_[i].sink_[j], graph_.values()[n.inputs[j]].slot, n.parameter_use[j], run);
  }
}

void Executor::run(const StepInput& input, int run) {
  check(!store_.booked_only(), "executor", "run: this model is only booked, for planning");
  check(run >= 0 && run < options_.runs_per_step, "executor", "run: expected 0 to ", options_.runs_per_step - 1,
        ", got ", run);
  check(input.cache_length >= 0, "executor", "cache_length: expected 0 or more, got ", input.cache_length);
  for (ValueId v : graph_.inputs())
    check(!graph_.values()[v].external || attached_[v], "executor", graph_.values()[v].name,
          ": nothing is attached");
  input_ = input;
  if (graph_.training()) bind_sinks(run);
  first_non_finite_.clear();
  if (options_.poison)
    for (const Buffer& b : plan_.buffers)
      if (b.kind != 'i') std::memset(arena_.data() + b.offset, 0xff, b.bytes);
  for (size_t i = 0; i < runs_.size(); ++i) {
    const double begin = profiling_ ? steady_seconds() : 0;
    run_position(i);
    if (!profiling_) continue;
    Span& span = spans_[i];
    span.begin = begin;
    span.end = steady_seconds();
    const double seconds = span.end - begin;
    span.seconds += seconds;
    span.least = span.calls == 0 ? seconds : std::min(span.least, seconds);
    ++span.calls;
  }
}

void Executor::run_position(size_t position) {
  const PlanStep& step = plan_.schedule[position];
  Node& node = *graph_.nodes()[step.node].node;
  for (const Conversion& c : step.widen) widen(c.elements, at<bf16>(c.from), at<float>(c.to));
  if (step.phase == Phase::forward) node.forward(runs_[position]);
  else if (step.phase == Phase::remake) node.remake(runs_[position]);
  else node.backward(runs_[position]);
  for (const Conversion& c : step.narrow) narrow(c.elements, at<float>(c.from), at<bf16>(c.to));
  if (step.pass_to >= 0)
    add_into(runs_[position].dout(0),
             tensor(graph_.nodes()[step.node].inputs[node.passes_gradient()], step.pass_to));
  if (options_.check_finite && first_non_finite_.empty()) note_non_finite(step, runs_[position]);
}

void Executor::profile(bool on) {
  profiling_ = on;
  if (on) spans_.assign(runs_.size(), {});
}

void Executor::note_non_finite(const PlanStep& step, const Run& run) {
  const bool forward = step.phase != Phase::backward;
  const std::vector<Tensor>& written = forward ? run.out_ : run.din_;
  if (!std::all_of(written.begin(), written.end(), fine))
    first_non_finite_ = graph_.nodes()[step.node].label + (forward ? " (forward)" : " (backward)");
}

Tensor Executor::value(ValueId id) const {
  check(!store_.booked_only(), "executor", "value: this model is only booked, for planning");
  const Value& v = graph_.values().at(id);
  const int buffer = v.kind == ValueKind::input ? -2 : plan_.final_buffer[id];
  if (v.kind == ValueKind::parameter) return tensor(id, -1);
  if (v.kind == ValueKind::input) {
    for (const Buffer& b : plan_.buffers)
      if (b.kind == 'i' && b.what == v.name) {
        Tensor t = tensor(id, -2);
        t.data = arena_.data() + b.offset;
        return t;
      }
  }
  check(buffer >= 0, "executor", "value: '", v.name, "' was not kept");
  return tensor(id, buffer);
}

void Executor::release() {
  arena_.release();
  gradients_.release();
}

void Executor::attach(const std::string& name, void* data) {
  const ValueId v = input(name);
  check(v != kAbsent && graph_.values()[v].external, "executor", "attach: no external input is called '", name,
        "'");
  attached_[v] = data;
  for (size_t i = 0; i < runs_.size(); ++i) {
    const std::vector<ValueId>& inputs = graph_.nodes()[plan_.schedule[i].node].inputs;
    for (size_t j = 0; j < inputs.size(); ++j)
      if (inputs[j] == v) runs_[i].in_[j].data = data;
  }
}

ValueId Executor::input(const std::string& name) const {
  for (ValueId v : graph_.inputs())
    if (graph_.values()[v].name == name) return v;
  return kAbsent;
}

}  // namespace mudd
