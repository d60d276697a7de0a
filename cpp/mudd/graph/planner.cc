#include "mudd/graph/planner.h"

#include <algorithm>

#include "mudd/base/arena.h"
#include "mudd/base/check.h"
#include "mudd/graph/graph_facts.h"

namespace mudd {
namespace {

// Walks the schedule once, creates buffers and extends their lifetimes at each use.
class Builder {
 public:
  Builder(const Graph& graph, const std::vector<ValueId>& losses, const std::vector<ValueId>& keep,
          const PlanOptions& options)
      : graph_(graph),
        facts_(graph, losses, keep, options.recompute),
        current_(graph.values().size(), -1),
        gradient_(graph.values().size(), -1),
        stale_(graph.values().size(), false),
        saved_(graph.nodes().size()) {}

  Plan build(const std::vector<ValueId>& keep, const PlanOptions& options) {
    for (ValueId v : graph_.inputs())
      if (!graph_.values()[v].external)
        current_[v] = buffer(graph_.values()[v].spec, BufferKind::input, graph_.values()[v].name);
    for (int i = 0; i < count(); ++i)
      if (!(graph_.training() && node(i).computes_in_backward())) forward(i);
    plan_.backward_begin = now();
    if (graph_.training()) {
      forget_results();
      for (int i = count() - 1; i >= 0; --i)
        if (facts_.active(i)) backward(i);
    }
    const int end = std::max(0, static_cast<int>(plan_.schedule.size()) - 1);
    for (ValueId v : graph_.inputs()) {
      if (current_[v] < 0) continue;
      plan_.buffers[current_[v]].first = 0;
      plan_.buffers[current_[v]].last = end;
    }
    plan_.final_buffer.assign(current_.size(), -1);
    for (ValueId v : keep) {
      check(current_[v] >= 0, "planner", "keep: '", graph_.values()[v].name, "' is never computed");
      plan_.final_buffer[v] = current_[v];
      plan_.buffers[current_[v]].last = end;
    }
    plan_.gradients = gradient_uses(graph_, plan_.schedule);
    plan_.arena_bytes = assign_offsets(plan_.buffers, options);
    plan_.likely_bytes = likely_bytes(options);
    plan_gathers(graph_, options, plan_);
    return std::move(plan_);
  }

 private:
  int count() const { return static_cast<int>(graph_.nodes().size()); }
  const GraphNode& entry(int i) const { return graph_.nodes()[i]; }
  const Node& node(int i) const { return *entry(i).node; }
  bool receives(ValueId v) const { return facts_.is_result(v) && graph_.values()[v].wants_gradient; }
  int now() const { return static_cast<int>(plan_.schedule.size()); }

  int buffer(int64_t bytes, BufferKind kind, const std::string& what) {
    plan_.buffers.push_back({.bytes = aligned(bytes), .first = now(), .last = now(), .what = what, .kind = kind});
    return static_cast<int>(plan_.buffers.size()) - 1;
  }
  int buffer(const TensorSpec& spec, BufferKind kind, const std::string& what) {
    const int b = buffer(spec.bytes(), kind, what);
    plan_.buffers[b].dtype = spec.dtype;
    return b;
  }
  int buffer_of(ValueId v, DType dtype, BufferKind kind) {
    TensorSpec spec = graph_.values()[v].spec;
    spec.dtype = dtype;
    return buffer(spec, kind, graph_.values()[v].name);
  }
  int touch(int b) {
    if (b >= 0) plan_.buffers[b].last = std::max(plan_.buffers[b].last, now());
    return b;
  }

  // Return the index of the buffer that node i uses for b, which contains v or its gradient: b itself, or an
  // fp32 copy that lives at this position (j: input, or -1).
  int seen(int i, int j, ValueId v, int b) {
    if (b < 0 || plan_.buffers[b].dtype != DType::bf16) return b;
    if (node(i).native_bf16() && (j < 0 || !node(i).weight_like(j))) return b;
    return buffer_of(v, DType::f32, BufferKind::scratch);
  }
  int widened(PlanStep& step, int i, int j, ValueId v, int b) {
    const int copy = seen(i, j, v, touch(b));
    if (copy != b) step.widen.push_back({b, copy, graph_.values()[v].spec.size()});
    return copy;
  }
  int narrowed(PlanStep& step, int i, int j, ValueId v, int b) {
    const int copy = seen(i, j, v, touch(b));
    if (copy != b) step.narrow.push_back({copy, b, graph_.values()[v].spec.size()});
    return copy;
  }

  void bind_inputs(PlanStep& step, int i, bool all) {
    for (size_t j = 0; j < entry(i).inputs.size(); ++j) {
      const ValueId v = entry(i).inputs[j];
      const int number = static_cast<int>(j);
      const bool wanted = v != kAbsent && (all || node(i).backward_reads_input(number));
      step.in.push_back(wanted ? widened(step, i, number, v, current_[v]) : -1);
    }
  }

  bool same_memory(ValueId a, ValueId b) const {
    const TensorSpec &x = graph_.values()[a].spec, &y = graph_.values()[b].spec;
    return x.dtype == y.dtype && x.bytes() == y.bytes();
  }

  void make_outputs(PlanStep& step, int i) {
    const int place = node(i).in_place_input();
    for (ValueId v : entry(i).outputs) {
      const Value& value = graph_.values()[v];
      const ValueId source = place >= 0 && value.output == 0 ? entry(i).inputs[place] : kAbsent;
      const bool over = source != kAbsent && facts_.free_after(i, source) && same_memory(source, v);
      current_[v] = over ? current_[source] : buffer(value.spec, BufferKind::result, value.name);
      stale_[v] = false;
      step.out.push_back(narrowed(step, i, -1, v, current_[v]));
    }
  }

  void bind_saved(PlanStep& step, int i) {
    if (saved_[i].empty())
      for (size_t k = 0; k < entry(i).needs.saved_.size(); ++k) {
        saved_[i].push_back(buffer(entry(i).needs.saved_[k], BufferKind::saved, entry(i).label));
        plan_.buffers.back().likely = entry(i).needs.saved_likely_[k];
      }
    for (int b : saved_[i]) step.saved.push_back(touch(b));
  }

  void bind_scratch(PlanStep& step, int i, int64_t bytes, int64_t likely) {
    if (bytes == 0) return;
    step.scratch = buffer(bytes, BufferKind::scratch, entry(i).label);
    plan_.buffers.back().likely = likely;
  }

  // Return the size of an arena with the bytes that runs are planned to touch.
  int64_t likely_bytes(const PlanOptions& options) const {
    std::vector<Buffer> buffers = plan_.buffers;
    bool fewer = false;
    for (Buffer& b : buffers) {
      fewer |= b.likely >= 0 && b.likely < b.bytes;
      if (b.likely >= 0) b.bytes = b.likely;
    }
    return fewer ? assign_offsets(buffers, options) : plan_.arena_bytes;
  }

  void forward(int i) {
    PlanStep step;
    step.node = i;
    step.phase = NodePass::forward;
    bind_inputs(step, i, true);
    make_outputs(step, i);
    bind_saved(step, i);
    bind_scratch(step, i, entry(i).needs.scratch_forward_, entry(i).needs.likely_forward_);
    plan_.schedule.push_back(std::move(step));
  }

  // Recompute an output from the saved bytes of its node.
  void remake(int i) {
    PlanStep step;
    step.node = i;
    step.phase = NodePass::remake;
    step.in.assign(entry(i).inputs.size(), -1);
    const ValueId v = entry(i).outputs[0];
    current_[v] = buffer(graph_.values()[v].spec, BufferKind::result, graph_.values()[v].name);
    stale_[v] = false;
    step.out.push_back(narrowed(step, i, -1, v, current_[v]));
    bind_saved(step, i);
    plan_.schedule.push_back(std::move(step));
  }

  // End the lifetime of recomputed results after their last forward reader; backward readers get a new copy.
  void forget_results() {
    for (int i = 0; i < count(); ++i)
      if (facts_.recomputed(i) || facts_.remade(i))
        for (ValueId v : entry(i).outputs) stale_[v] = true;
  }

  void ensure(ValueId v) {
    if (v == kAbsent || !stale_[v]) return;
    const int producer = graph_.values()[v].producer;
    if (facts_.remade(producer)) return remake(producer);
    for (ValueId w : entry(producer).inputs) ensure(w);
    forward(producer);
  }

  void backward(int i) {
    for (size_t j = 0; j < entry(i).inputs.size(); ++j)
      if (node(i).backward_reads_input(static_cast<int>(j))) ensure(entry(i).inputs[j]);
    for (size_t j = 0; j < entry(i).outputs.size(); ++j)
      if (node(i).backward_reads_output(static_cast<int>(j))) ensure(entry(i).outputs[j]);
    PlanStep step;
    step.node = i;
    step.phase = NodePass::backward;
    bind_inputs(step, i, false);
    if (node(i).computes_in_backward()) make_outputs(step, i);
    else
      for (size_t j = 0; j < entry(i).outputs.size(); ++j)
        step.out.push_back(node(i).backward_reads_output(static_cast<int>(j))
                               ? widened(step, i, -1, entry(i).outputs[j], current_[entry(i).outputs[j]])
                               : -1);
    bind_saved(step, i);
    bind_scratch(step, i, entry(i).needs.scratch_backward_, entry(i).needs.likely_backward_);
    for (ValueId v : entry(i).outputs) step.dout.push_back(widened(step, i, -1, v, gradient_[v]));
    bind_gradients(step, i);
    plan_.schedule.push_back(std::move(step));
  }

  void bind_gradients(PlanStep& step, int i) {
    const int pass = node(i).passes_gradient(), place = node(i).gradient_in_place_input();
    const int whole = gradient_[entry(i).outputs[0]];
    for (size_t j = 0; j < entry(i).inputs.size(); ++j) {
      const ValueId v = entry(i).inputs[j];
      step.din.push_back(-1);
      step.accumulate.push_back(0);
      if (!receives(v) || static_cast<int>(j) == pass) continue;
      step.accumulate.back() = gradient_[v] >= 0;
      if (gradient_[v] < 0) {
        const DType type = facts_.gradient_type(v);
        const bool over = static_cast<int>(j) == place && whole >= 0 && occurrences(i, v) == 1 &&
                          plan_.buffers[whole].dtype == type;
        gradient_[v] = over ? whole : buffer_of(v, type, BufferKind::gradient);
      }
      step.din.back() = narrowed(step, i, static_cast<int>(j), v, gradient_[v]);
    }
    if (pass < 0 || pass >= static_cast<int>(entry(i).inputs.size()) || !receives(entry(i).inputs[pass]) ||
        whole < 0)
      return;
    const ValueId v = entry(i).inputs[pass];
    if (gradient_[v] < 0) gradient_[v] = whole;  // passed on in the same memory
    else {
      step.pass_from = touch(whole);
      step.pass_to = touch(gradient_[v]);
    }
  }

  int occurrences(int i, ValueId v) const {
    return static_cast<int>(std::count(entry(i).inputs.begin(), entry(i).inputs.end(), v));
  }

  const Graph& graph_;
  const GraphFacts facts_;
  std::vector<int> current_, gradient_;  // per value: its buffer now, its gradient's buffer
  std::vector<bool> stale_;
  std::vector<std::vector<int>> saved_;  // per node
  Plan plan_;
};

}  // namespace

const char* name_of(BufferKind kind) {
  constexpr const char* kNames[] = {"input", "result", "saved", "scratch", "gradient", "weights"};
  return kNames[static_cast<int>(kind)];
}

Plan make_plan(const Graph& graph, const std::vector<ValueId>& losses, const std::vector<ValueId>& keep,
               const PlanOptions& options) {
  return Builder(graph, losses, keep, options).build(keep, options);
}

}  // namespace mudd
