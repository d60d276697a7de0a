#include "mudd/graph/observed_node.h"

#include <map>
#include <utility>

namespace mudd {
namespace {

// Return the buffer that stores the values of `buffer` after the node: another one after a conversion to bf16.
int stored(const PlanStep& step, int buffer) {
  for (const Conversion& c : step.narrow)
    if (c.from == buffer) return c.to;
  return buffer;
}

void show(Observed event, std::string value, const std::vector<int64_t>& shape, const Tensor& tensor,
          NodeObserver& observer) {
  if (!tensor) return;
  event.value = std::move(value);
  event.shape = shape;
  event.tensor = tensor;
  observer.see(event);
}

Tensor flat(float* data, int64_t elements) {
  return {.data = data, .rows = 1, .cols = elements, .stride = elements};
}

}  // namespace

ShownNodes::ShownNodes(const Graph& graph, const Plan& plan, const ParamStore& store)
    : graph_(graph), plan_(plan), store_(store), uses_(plan.schedule.size()) {
  std::map<std::string, int> seen;
  for (const GraphNode& n : graph.nodes()) {
    const int before = seen[n.label]++;
    labels_.push_back(before == 0 ? n.label : n.label + "#" + std::to_string(before + 1));
  }
  for (const GradientUse& use : plan.gradients) uses_[use.position].push_back(&use);
}

void ShownNodes::inputs(const Workspace& workspace, int run, int64_t first_sample, NodeObserver& observer) const {
  for (ValueId v : graph_.inputs()) {
    const Value& value = graph_.values()[v];
    if (value.external) continue;
    Observed event{.stage = StepStage::data, .run = run, .place = "batch", .op = "data"};
    event.first_row = first_sample;
    show(std::move(event), value.name, value.spec.shape, workspace.value(v), observer);
  }
}

void ShownNodes::node(const Workspace& workspace, size_t position, int run, NodeObserver& observer) const {
  const PlanStep& step = plan_.schedule[position];
  const GraphNode& n = graph_.nodes()[step.node];
  const bool again = static_cast<int>(position) >= plan_.backward_begin;
  const Observed event{.stage = step.phase == NodePass::backward ? StepStage::backward
                                : again                          ? StepStage::recompute
                                                                 : StepStage::forward,
                       .run = run,
                       .place = labels_[step.node],
                       .op = n.node->op()};
  if (step.phase != NodePass::backward || n.node->computes_in_backward())
    results(workspace, position, event, observer);
  if (step.phase == NodePass::backward) gradients(workspace, position, event, observer);
}

void ShownNodes::results(const Workspace& workspace, size_t position, Observed event,
                         NodeObserver& observer) const {
  const PlanStep& step = plan_.schedule[position];
  const GraphNode& n = graph_.nodes()[step.node];
  for (size_t j = 0; j < step.out.size(); ++j) {
    if (step.out[j] < 0) continue;
    const Tensor t = workspace.tensor(n.outputs[j], stored(step, step.out[j]));
    show(event, "output " + std::to_string(j), graph_.values()[n.outputs[j]].spec.shape, t, observer);
  }
}

void ShownNodes::gradients(const Workspace& workspace, size_t position, const Observed& event,
                           NodeObserver& observer) const {
  const PlanStep& step = plan_.schedule[position];
  const GraphNode& n = graph_.nodes()[step.node];
  for (size_t j = 0; j < n.inputs.size(); ++j) {
    Tensor t;
    if (step.din[j] >= 0) t = workspace.tensor(n.inputs[j], stored(step, step.din[j]));
    else if (static_cast<int>(j) == n.node->passes_gradient()) t = passed(workspace, position);
    if (t)
      show(event, "gradient of input " + std::to_string(j), graph_.values()[n.inputs[j]].spec.shape, t, observer);
  }
  for (const GradientUse* use : uses_[position])
    weight_gradient(*use, workspace.bound(position).sink_[use->input], event, observer);
}

// Return the gradient that the node passes on unchanged; empty if it passes none.
Tensor ShownNodes::passed(const Workspace& workspace, size_t position) const {
  const PlanStep& step = plan_.schedule[position];
  const GraphNode& n = graph_.nodes()[step.node];
  const ValueId v = n.inputs[n.node->passes_gradient()];
  if (v == kAbsent || graph_.values()[v].kind != ValueKind::result || !graph_.values()[v].wants_gradient)
    return {};
  if (step.pass_to >= 0) return workspace.tensor(v, step.pass_to);
  return step.dout[0] < 0 ? Tensor{} : workspace.tensor(v, step.dout[0]);
}

int64_t ShownNodes::elements(const GradientUse& use, const GradSink& sink) const {
  const Declarations& parameters = store_.parameters();
  const Part part = store_.deals(use.parameter) ? parameters.held(use.parameter) : parameters.whole(use.parameter);
  return sink.rank_stride > 0 ? sink.rank_stride * store_.experts()->ranks() : part.size();
}

void ShownNodes::weight_gradient(const GradientUse& use, const GradSink& sink, Observed event,
                                 NodeObserver& observer) const {
  const Parameter& p = store_.parameters().at(use.parameter);
  const std::string value = "gradient of " + p.name;
  event.of_ranks = store_.deals(use.parameter);
  if (sink.out) {
    const int64_t n = elements(use, sink);
    if (n != p.size()) return show(event, value, {n}, flat(sink.out, n), observer);
    show(event, value, p.shape, flat(sink.out, n), observer);
  } else if (sink.out_rows) {
    const RowGradient& rows = *sink.out_rows;
    const Tensor t{.data = rows.values, .rows = rows.count, .cols = rows.width, .stride = rows.width};
    show(event, value, {rows.count, rows.width}, t, observer);
  }
}

void ShownNodes::sum(const GradientUse& use, float* total, int64_t elements, int run,
                     NodeObserver& observer) const {
  const Parameter& p = store_.parameters().at(use.parameter);
  Observed event{.stage = StepStage::sum, .run = run, .place = p.name, .op = "sum over micro-batches"};
  event.of_ranks = store_.deals(use.parameter);
  const std::string value = use.use == 0 ? "gradient" : "gradient of use " + std::to_string(use.use + 1);
  const std::vector<int64_t> shape = elements == p.size() ? p.shape : std::vector<int64_t>{elements};
  show(event, value, shape, flat(total, elements), observer);
}

void ShownNodes::weights(NodeObserver& observer) const {
  for (int i = 0; i < store_.parameters().count(); ++i) {
    const Parameter& p = store_.parameters().at(i);
    const Part held = store_.parameters().held(i);
    Observed event{.stage = StepStage::state, .place = p.name, .op = "weight"};
    event.begin = held.begin;
    const std::vector<int64_t> shape = held.size() == p.size() ? p.shape : std::vector<int64_t>{held.size()};
    if (held.size() > 0) show(std::move(event), "weight", shape, store_.planes().weights(i), observer);
  }
}

}  // namespace mudd
