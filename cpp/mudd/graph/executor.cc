#include "mudd/graph/executor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "mudd/base/check.h"
#include "mudd/base/room_error.h"
#include "mudd/base/row_tasks.h"
#include "mudd/base/steady_seconds.h"
#include "mudd/kernels/convert/convert.h"

namespace mudd {
namespace {

// Only the graph has the label (the layer) of a node, so add it to errors here.
void forward_of(const GraphNode& n, const Run& run) {
  try {
    n.node->forward(run);
  } catch (const RoomError& error) {
    throw RoomError("[mesh] " + n.label + ": " + error.what());
  }
}

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

namespace {

// Check that the store has memory for the parameters of the graph.
void check_parameters(const Graph& graph, const ParamStore& store) {
  check(store.allocated(), "executor", "parameters: expected an allocated store");
  for (const Value& value : graph.values()) {
    if (value.kind != ValueKind::parameter) continue;
    check(value.slot < store.parameters().count() && store.parameters().at(value.slot).name == value.name &&
              store.parameters().at(value.slot).shape == value.spec.shape,
          "executor", "parameters: expected the store of this graph, got one without '", value.name, "' ",
          value.spec.text());
  }
}

// Ops without 16-bit code would read a 16-bit weight as fp32.
void check_readers(const Graph& graph, const Declarations& parameters) {
  for (const GraphNode& n : graph.nodes())
    for (size_t j = 0; j < n.inputs.size(); ++j) {
      if (n.inputs[j] == kAbsent || graph.values()[n.inputs[j]].kind != ValueKind::parameter) continue;
      const int slot = graph.values()[n.inputs[j]].slot;
      check(parameters.at(slot).stored == DType::f32 || n.node->reads_stored(static_cast<int>(j)), "executor",
            parameters.at(slot).name, ": expected float32 for ", n.label, ", got ",
            name_of(parameters.at(slot).stored), "; set train.frozen_dtype=fp32");
    }
}

// together: merge the requests of all processes of the host, whose graphs may have different row counts and so
// request different copies (Inference::packs_when_used); the store then keeps every requested copy.
void request_packs(const Graph& graph, ParamStore& store, bool together) {
  constexpr std::array kWays = {Pack::plain, Pack::transposed};
  const int64_t number = store.parameters().count() * std::ssize(kWays);
  std::vector<std::byte> own(together ? 0 : static_cast<size_t>(number));
  auto* asked = reinterpret_cast<std::atomic<bool>*>(together ? store.share().memory(number) : own.data());
  const auto flag = [&](int64_t i, Pack how) -> std::atomic<bool>& {
    return asked[i * std::ssize(kWays) + (how == Pack::transposed)];
  };
  for (const GraphNode& n : graph.nodes())
    for (const Inference::PackRequest& p : n.needs.packs_) {
      const ValueId v = n.inputs[p.input];
      if (v != kAbsent && graph.values()[v].kind == ValueKind::parameter)
        flag(graph.values()[v].slot, p.how) = true;
    }
  if (together) store.share().barrier();
  for (int i = 0; i < store.parameters().count(); ++i)
    for (Pack how : kWays)
      if (flag(i, how)) store.packs().request(i, how);
}

// Request and allocate what a workspace needs, because its runs point at the packed copies.
Plan prepare(const Graph& graph, ParamStore& store, const std::vector<ValueId>& losses,
             const std::vector<ValueId>& keep, const ExecutorOptions& options) {
  const int runs = options.runs_per_step;
  check(runs >= 1 && (runs & (runs - 1)) == 0, "executor", "runs_per_step: expected a power of two, got ", runs);
  check_parameters(graph, store);
  check_readers(graph, store.parameters());
  Plan plan = make_plan(graph, losses, keep, options.plan);
  const bool together = options.gradient_memory && store.share().size > 1 && !store.booked_only();
  request_packs(graph, store, together);
  return plan;
}

}  // namespace

Executor::Executor(Graph graph, ParamStore& store, std::vector<ValueId> losses, std::vector<ValueId> keep,
                   const ExecutorOptions& options)
    : graph_(std::move(graph)),
      store_(store),
      options_(options),
      plan_(prepare(graph_, store_, losses, keep, options_)),
      weights_(take_weight_memory()),
      workspace_(graph_, plan_, store_, weights_),
      shown_(graph_, plan_, store_) {
  list_reads();
  if (graph_.training())
    gradients_ = GradientSums(graph_, plan_, store_,
                              {.runs = options_.runs_per_step,
                               .by_rows = options_.gradient_rows,
                               .memory = options_.gradient_memory,
                               .bucket_bytes = options_.bucket_bytes});
}

std::byte* Executor::take_weight_memory() {
  if (plan_.weight_bytes == 0) return nullptr;
  if (store_.booked_only()) {
    booked_weights_ = Arena(plan_.weight_bytes, true);
    return booked_weights_.data();
  }
  check(store_.source(), "executor", "weights: nobody brings those that the store does not hold");
  return store_.source()->memory(plan_.weight_bytes);
}

void Executor::list_reads() {
  posts_.resize(plan_.schedule.size());
  awaits_.resize(plan_.schedule.size());
  for (size_t u = 0; u < plan_.units.size(); ++u) {
    posts_[plan_.units[u].post].push_back(static_cast<int>(u));
    awaits_[plan_.units[u].first].push_back(static_cast<int>(u));
  }
  std::vector<bool> seen(static_cast<size_t>(store_.parameters().count()));
  first_reads_.resize(plan_.schedule.size());
  for (size_t at = 0; at < first_reads_.size(); ++at)
    for (ValueId v : graph_.nodes()[plan_.schedule[at].node].inputs) {
      if (v == kAbsent || graph_.values()[v].kind != ValueKind::parameter) continue;
      const int slot = graph_.values()[v].slot;
      if (!seen[slot]) first_reads_[at].push_back(slot);
      seen[slot] = true;
    }
}

void Executor::run(const StepInput& input, int run, GradientObserver* observer) {
  check_number(run);
  forward(workspace_, input, run);
  backward(workspace_, run, observer);
}

void Executor::check_number(int run) const {
  check(run >= 0 && run < options_.runs_per_step, "executor", "run: expected 0 to ", options_.runs_per_step - 1,
        ", got ", run);
}

void Executor::forward(Workspace& workspace, const StepInput& input, int run) {
  store_.packs().refresh_own();
  workspace.begin(input);
  finite_.clear();
  if (options_.poison) workspace.poison();
  if (observer_) shown_.inputs(workspace, run, input.first_sample, *observer_);
  for (int i = 0; i < plan_.backward_begin; ++i) time_position(workspace, i, run);
  workspace.end_forward();
}

void Executor::backward(Workspace& workspace, int run, GradientObserver* observer) {
  check_number(run);
  workspace.begin_backward();
  for (const GradientUse& u : plan_.gradients)
    gradients_.point(workspace.bound(u.position).sink_[u.input], u.parameter, u.use, run);
  const bool cut = gradients_.cut();
  if (!cut && run + 1 < options_.runs_per_step) observer = nullptr;
  if (cut && observer) observer->begins(run);
  auto use = plan_.gradients.begin();
  for (int i = plan_.backward_begin; i < static_cast<int>(plan_.schedule.size()); ++i) {
    if (cut && observer) observer->reaches(i);
    time_position(workspace, i, run);
    for (; observer && use != plan_.gradients.end() && use->position == i; ++use) observer->finished(*use);
  }
}

// A unit is gathered while the one before it is read.
void Executor::gather(size_t position) {
  for (int u : posts_[position]) {
    const WeightUnit& unit = plan_.units[u];
    store_.source()->post(unit.members, weights_ + plan_.weights[unit.buffer].offset);
  }
  for (size_t k = 0; k < awaits_[position].size(); ++k) store_.source()->await();
}

void Executor::time_position(Workspace& workspace, size_t position, int run) {
  gather(position);
  for (int parameter : first_reads_[position]) store_.await(parameter);
  const auto compute = [&] {
    if (observed()) observed_position(workspace, position, run);
    else run_position(workspace, position);
  };
  if (!profiling_) return compute();
  const double begin = steady_seconds();
  compute();
  Span& span = spans_[position];
  span.begin = begin;
  span.end = steady_seconds();
  const double seconds = span.end - begin;
  span.seconds += seconds;
  span.least = span.calls == 0 ? seconds : std::min(span.least, seconds);
  ++span.calls;
  if (keeps_calls_) calls_.push_back({position, span.begin, span.end});
}

void Executor::run_position(Workspace& workspace, size_t position) {
  const PlanStep& step = plan_.schedule[position];
  const Run& bound = workspace.bound(position);
  const GraphNode& n = graph_.nodes()[step.node];
  for (const Conversion& c : step.widen) widen(c.elements, workspace.at<bf16>(c.from), workspace.at<float>(c.to));
  if (step.phase == NodePass::forward) forward_of(n, bound);
  else if (step.phase == NodePass::remake) n.node->remake(bound);
  else n.node->backward(bound);
  for (const Conversion& c : step.narrow)
    narrow(c.elements, workspace.at<float>(c.from), workspace.at<bf16>(c.to));
  if (step.pass_to >= 0)
    add_into(bound.dout(0), workspace.tensor(n.inputs[n.node->passes_gradient()], step.pass_to));
}

void Executor::profile(bool on, bool keep_calls) {
  profiling_ = on;
  keeps_calls_ = on && keep_calls;
  calls_.clear();
  if (on) spans_.assign(plan_.schedule.size(), {});
}

void Executor::release() {
  workspace_.release();
  gradients_.release();
}

ValueId Executor::input(const std::string& name) const {
  for (ValueId v : graph_.inputs())
    if (graph_.values()[v].name == name) return v;
  return kAbsent;
}

double Executor::flops(size_t position) const {
  const PlanStep& step = plan().schedule[position];
  const Node& node = *graph().nodes()[step.node].node;
  if (step.phase == NodePass::remake) return 0;
  if (step.phase == NodePass::forward) return node.forward_flops();
  return node.backward_flops() + (node.computes_in_backward() ? node.forward_flops() : 0);
}

}  // namespace mudd
