#include "mudd/graph/planner.h"

#include <algorithm>

#include "mudd/base/check.h"
#include "mudd/graph/arena.h"

namespace mudd {
namespace {

// Walks the schedule once, creating buffers and stretching their lives as they are touched.
class Builder {
 public:
  Builder(const Graph& graph, const std::vector<ValueId>& losses, const std::vector<ValueId>& keep,
          const PlanOptions& options)
      : graph_(graph),
        options_(options),
        current_(graph.values().size(), -1),
        gradient_(graph.values().size(), -1),
        stale_(graph.values().size(), false),
        kept_(graph.values().size(), false),
        saved_(graph.nodes().size()) {
    for (ValueId v : keep) kept_[v] = true;
    mark_active(losses);
  }

  Plan build(const std::vector<ValueId>& keep) {
    for (ValueId v : graph_.inputs())
      if (!graph_.values()[v].external)
        current_[v] = buffer(graph_.values()[v].spec, 'i', graph_.values()[v].name);
    for (int i = 0; i < count(); ++i)
      if (!(graph_.training() && node(i).computes_in_backward())) forward(i);
    if (graph_.training()) {
      forget_results();
      for (int i = count() - 1; i >= 0; --i)
        if (active_[i]) backward(i);
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
    plan_.arena_bytes = assign_offsets(plan_.buffers, options_);
    return std::move(plan_);
  }

 private:
  int count() const { return static_cast<int>(graph_.nodes().size()); }
  const GraphNode& entry(int i) const { return graph_.nodes()[i]; }
  const Node& node(int i) const { return *entry(i).node; }
  bool is_result(ValueId v) const { return v != kAbsent && graph_.values()[v].kind == ValueKind::result; }
  bool receives(ValueId v) const { return is_result(v) && graph_.values()[v].wants_gradient; }
  int now() const { return static_cast<int>(plan_.schedule.size()); }

  int buffer(int64_t bytes, char kind, const std::string& what) {
    plan_.buffers.push_back({.bytes = aligned(bytes), .first = now(), .last = now(), .what = what, .kind = kind});
    return static_cast<int>(plan_.buffers.size()) - 1;
  }
  int buffer(const TensorSpec& spec, char kind, const std::string& what) {
    const int b = buffer(spec.bytes(), kind, what);
    plan_.buffers[b].dtype = spec.dtype;
    return b;
  }
  int buffer_of(ValueId v, DType dtype, char kind) {
    TensorSpec spec = graph_.values()[v].spec;
    spec.dtype = dtype;
    return buffer(spec, kind, graph_.values()[v].name);
  }
  int touch(int b) {
    if (b >= 0) plan_.buffers[b].last = std::max(plan_.buffers[b].last, now());
    return b;
  }

  // A node takes part in backward when a loss depends on it and it can pass gradients on.
  void mark_active(const std::vector<ValueId>& losses) {
    active_.assign(count(), false);
    recomputed_.assign(count(), false);
    remade_.assign(count(), false);
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
      recomputed_[i] = options_.recompute && active_[i] && node(i).cheap_to_recompute() && worth_recomputing(i);
    }
  }

  // A result is read again in backward, and none has to stay anyway.
  bool worth_recomputing(int i) const {
    bool read = false;
    for (ValueId v : entry(i).outputs) {
      if (kept_[v]) return false;
      read = read || read_in_backward(v);
    }
    return read;
  }

  bool read_in_backward(ValueId v) const {
    for (int i = 0; i < count(); ++i) {
      if (!active_[i]) continue;
      for (size_t j = 0; j < entry(i).inputs.size(); ++j)
        if (entry(i).inputs[j] == v && node(i).backward_reads_input(static_cast<int>(j))) return true;
      for (size_t j = 0; j < entry(i).outputs.size(); ++j)
        if (entry(i).outputs[j] == v && node(i).backward_reads_output(static_cast<int>(j))) return true;
    }
    return false;
  }

  // May node i write its output over input v? Only when nobody looks at v afterwards.
  bool free_after(int i, ValueId v) const {
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

  // Number of the buffer that node i gets in place of b, which holds v or its gradient: b itself, or an fp32 copy
  // that lives at this position (j: input, or -1).
  int seen(int i, int j, ValueId v, int b) {
    if (b < 0 || plan_.buffers[b].dtype != DType::bf16) return b;
    if (node(i).native_bf16() && (j < 0 || !node(i).weight_like(j))) return b;
    return buffer_of(v, DType::f32, 'x');
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
      const bool over = source != kAbsent && free_after(i, source) && same_memory(source, v);
      current_[v] = over ? current_[source] : buffer(value.spec, 'r', value.name);
      stale_[v] = false;
      step.out.push_back(narrowed(step, i, -1, v, current_[v]));
    }
  }

  void bind_saved(PlanStep& step, int i) {
    if (saved_[i].empty())
      for (int64_t bytes : entry(i).needs.saved_) saved_[i].push_back(buffer(bytes, 's', entry(i).label));
    for (int b : saved_[i]) step.saved.push_back(touch(b));
  }

  void bind_scratch(PlanStep& step, int i, int64_t bytes) {
    if (bytes > 0) step.scratch = buffer(bytes, 'x', entry(i).label);
  }

  void forward(int i) {
    PlanStep step;
    step.node = i;
    step.phase = Phase::forward;
    bind_inputs(step, i, true);
    make_outputs(step, i);
    bind_saved(step, i);
    bind_scratch(step, i, entry(i).needs.scratch_forward_);
    plan_.schedule.push_back(std::move(step));
  }

  // An output from what the node saved.
  void remake(int i) {
    PlanStep step;
    step.node = i;
    step.phase = Phase::remake;
    step.in.assign(entry(i).inputs.size(), -1);
    const ValueId v = entry(i).outputs[0];
    current_[v] = buffer(graph_.values()[v].spec, 'r', graph_.values()[v].name);
    stale_[v] = false;
    step.out.push_back(narrowed(step, i, -1, v, current_[v]));
    bind_saved(step, i);
    plan_.schedule.push_back(std::move(step));
  }

  // Results that are made again die after their last forward reader; backward readers get a fresh copy.
  void forget_results() {
    for (int i = 0; i < count(); ++i)
      if (recomputed_[i] || remade_[i])
        for (ValueId v : entry(i).outputs) stale_[v] = true;
  }

  void ensure(ValueId v) {
    if (v == kAbsent || !stale_[v]) return;
    const int producer = graph_.values()[v].producer;
    if (remade_[producer]) return remake(producer);
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
    step.phase = Phase::backward;
    bind_inputs(step, i, false);
    if (node(i).computes_in_backward()) make_outputs(step, i);
    else
      for (size_t j = 0; j < entry(i).outputs.size(); ++j)
        step.out.push_back(node(i).backward_reads_output(static_cast<int>(j))
                               ? widened(step, i, -1, entry(i).outputs[j], current_[entry(i).outputs[j]])
                               : -1);
    bind_saved(step, i);
    bind_scratch(step, i, entry(i).needs.scratch_backward_);
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
        const DType type = gradient_type(v);
        const bool over = static_cast<int>(j) == place && whole >= 0 && occurrences(i, v) == 1 &&
                          plan_.buffers[whole].dtype == type;
        gradient_[v] = over ? whole : buffer_of(v, type, 'g');
      }
      step.din.back() = narrowed(step, i, static_cast<int>(j), v, gradient_[v]);
    }
    if (pass < 0 || pass >= static_cast<int>(entry(i).inputs.size()) || !receives(entry(i).inputs[pass]) ||
        whole < 0)
      return;
    const ValueId v = entry(i).inputs[pass];
    if (gradient_[v] < 0) gradient_[v] = whole;  // handed on in the same memory
    else {
      step.pass_from = touch(whole);
      step.pass_to = touch(gradient_[v]);
    }
  }

  // bf16 where one node alone hands over the gradient of a bf16 value; a sum over several is kept in fp32, as is
  // that of a weight and what a residual passes on.
  DType gradient_type(ValueId v) const {
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

  int occurrences(int i, ValueId v) const {
    return static_cast<int>(std::count(entry(i).inputs.begin(), entry(i).inputs.end(), v));
  }

  const Graph& graph_;
  const PlanOptions& options_;
  std::vector<int> current_, gradient_;  // per value: its buffer now, its gradient's buffer
  std::vector<bool> stale_, kept_, active_, recomputed_, remade_;
  std::vector<std::vector<int>> saved_;  // per node
  Plan plan_;
};

}  // namespace

Plan make_plan(const Graph& graph, const std::vector<ValueId>& losses, const std::vector<ValueId>& keep,
               const PlanOptions& options) {
  return Builder(graph, losses, keep, options).build(keep);
}

int64_t assign_offsets(std::vector<Buffer>& buffers, const PlanOptions& options) {
  int64_t top = aligned(options.shift);
  std::vector<Buffer*> order;
  for (Buffer& b : buffers) order.push_back(&b);
  if (options.reuse)
    std::stable_sort(order.begin(), order.end(),
                     [](const Buffer* a, const Buffer* b) { return a->bytes > b->bytes; });
  std::vector<const Buffer*> placed;  // by offset
  for (Buffer* b : order) {
    int64_t at = options.reuse ? 0 : top;
    for (const Buffer* p : placed) {
      if (!options.reuse) break;
      if (p->last < b->first || b->last < p->first) continue;
      if (p->offset - at >= b->bytes) break;
      at = std::max(at, p->offset + p->bytes);
    }
    b->offset = at;
    top = std::max(top, at + b->bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), b,
                                   [](const Buffer* x, const Buffer* y) { return x->offset < y->offset; }),
                  b);
  }
  for (Buffer& b : buffers) b.offset += options.shift;
  return top + options.shift;
}

int64_t Plan::bytes_of(char kind) const {
  std::vector<int64_t> change(schedule.size() + 2, 0);
  for (const Buffer& b : buffers)
    if (b.kind == kind) {
      change[b.first] += b.bytes;
      change[b.last + 1] -= b.bytes;
    }
  int64_t alive = 0, most = 0;
  for (int64_t c : change) most = std::max(most, alive += c);
  return most;
}

}  // namespace mudd
