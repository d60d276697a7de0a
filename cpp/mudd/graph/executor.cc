#include "mudd/graph/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "mudd/base/check.h"
#include "mudd/graph/row_tasks.h"
#include "mudd/ops/convert/convert.h"
#include "mudd/ops/reduce/reduce.h"

namespace mudd {
namespace {

int levels_for(int runs) {
  int levels = 1;
  while ((1 << levels) < runs) ++levels;
  return levels;
}

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
  plan_ = make_plan(graph_, losses, keep, options_.plan);
  for (const GraphNode& n : graph_.nodes())
    for (const Inference::PackRequest& p : n.needs.packs_) {
      const ValueId v = n.inputs[p.input];
      if (v != kAbsent && graph_.values()[v].kind == ValueKind::parameter)
        store_.request_pack(graph_.values()[v].slot, p.how);
    }
  arena_ = Arena(plan_.arena_bytes, store_.booked_only());
  attached_.assign(graph_.values().size(), nullptr);
  place_gradients();
  runs_.resize(plan_.schedule.size());
  for (size_t i = 0; i < runs_.size(); ++i) bind(i);
}

// Makes the sums of one use from `offset` on; returns where they end. rows_per_run: rows of the table that a run
// can touch, or 0. A sum over r runs has at most r times as many; given by them it also has a place for every row.
int64_t Executor::book_sums(std::vector<Sum>& levels, const Parameter& parameter, int64_t rows_per_run,
                            int64_t offset) const {
  const int64_t rows = parameter.rows(), width = parameter.cols(), whole = aligned(parameter.size() * 4);
  const int64_t count = levels_for(options_.runs_per_step), place = aligned(rows * 4);
  const auto capacity = [&](int64_t level) {
    return std::min(rows, rows_per_run * (level + 1 < count ? int64_t{1} << level : options_.runs_per_step));
  };
  int64_t few = 0;
  for (int64_t level = 0; level < count; ++level) few += place + aligned(capacity(level) * width * 4);
  const bool by_rows = options_.gradient_rows && rows_per_run > 0 && 2 * few <= count * whole;
  for (int64_t level = 0; level < count; ++level) {
    Sum sum;
    sum.offset = offset;
    if (by_rows) sum.rows = {.table_rows = rows, .width = width, .capacity = capacity(level)};
    offset += by_rows ? place + aligned(capacity(level) * width * 4) : whole;
    levels.push_back(sum);
  }
  return offset;
}

void Executor::place_gradients() {
  sums_.resize(store_.count());
  used_.resize(store_.count());
  if (!graph_.training()) return;
  int64_t bytes = 0;
  for (const PlanStep& s : plan_.schedule) {
    if (s.phase != Phase::backward) continue;
    const GraphNode& n = graph_.nodes()[s.node];
    for (size_t j = 0; j < n.inputs.size(); ++j) {
      if (n.parameter_use[j] < 0 || !graph_.values()[n.inputs[j]].wants_gradient) continue;
      check(n.node->weight_like(static_cast<int>(j)), "executor", n.label, ": input ", j,
            " does not take a parameter, it is per token");
      const int p = graph_.values()[n.inputs[j]].slot, use = n.parameter_use[j];
      if (static_cast<int>(sums_[p].size()) <= use) sums_[p].resize(use + 1);
      bytes = book_sums(sums_[p][use], store_.at(p), n.node->gradient_rows(static_cast<int>(j)), bytes);
    }
  }
  gradients_ = Arena(bytes, store_.booked_only());
  // Uses that do not lead to the loss have no gradient.
  for (size_t p = 0; p < sums_.size(); ++p)
    for (size_t use = 0; use < sums_[p].size(); ++use)
      if (!sums_[p][use].empty()) used_[p].push_back(static_cast<int>(use));
  for (auto& uses : sums_)
    for (std::vector<Sum>& levels : uses)
      for (Sum& sum : levels) {
        std::byte* at = gradients_.data() + sum.offset;
        sum.rows.place = reinterpret_cast<int32_t*>(at);
        sum.rows.values = reinterpret_cast<float*>(at + aligned(sum.rows.table_rows * 4));
        if (sum.rows.capacity == 0) sum.all = reinterpret_cast<float*>(at);
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

// Run r of a step ends t = (trailing ones of r) subtrees: it adds levels 0..t-1 and leaves the sum in level t.
void Executor::point_sink(GradSink& sink, int parameter, int use, int run) {
  std::vector<Sum>& level = sums_[parameter][use];
  const auto rows_of = [](Sum& sum) { return sum.all ? nullptr : &sum.rows; };
  int t = 0;
  while ((run >> t) & 1) ++t;
  sink.n_add = t;
  for (int i = 0; i < t; ++i) {
    sink.add[i] = level[i].all;
    sink.add_rows[i] = rows_of(level[i]);
  }
  Sum& last = level[std::min<size_t>(t, level.size() - 1)];
  sink.out = last.all;
  sink.out_rows = rows_of(last);
}

void Executor::bind_sinks(int run) {
  for (size_t i = 0; i < runs_.size(); ++i) {
    const PlanStep& step = plan_.schedule[i];
    if (step.phase != Phase::backward) continue;
    const GraphNode& n = graph_.nodes()[step.node];
    for (size_t j = 0; j < n.inputs.size(); ++j)
      if (n.parameter_use[j] >= 0 && graph_.values()[n.inputs[j]].wants_gradient)
        point_sink(runs_[i].sink_[j], graph_.values()[n.inputs[j]].slot, n.parameter_use[j], run);
  }
}

const RowGradient* Executor::gradient_rows(int parameter, int use) const {
  const Sum& sum = last_sum(parameter, use);
  return sum.all ? nullptr : &sum.rows;
}

void Executor::run(const StepInput& input, int run) {
  check(!store_.booked_only(), "executor", "run: this model is only booked, for planning");
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
    span.seconds += span.end - begin;
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
