// The schedule position that finishes the gradient of each parameter use, and the buckets.
#include <algorithm>
#include <map>

#include "mudd/base/check.h"
#include "mudd/graph/planner.h"

namespace mudd {

std::vector<GradientUse> gradient_uses(const Graph& graph, const std::vector<PlanStep>& schedule) {
  std::vector<GradientUse> uses;
  for (size_t at = 0; at < schedule.size(); ++at) {
    if (schedule[at].phase != NodePass::backward) continue;
    const GraphNode& n = graph.nodes()[schedule[at].node];
    for (size_t j = 0; j < n.inputs.size(); ++j) {
      if (n.parameter_use[j] < 0 || !graph.values()[n.inputs[j]].wants_gradient) continue;
      check(n.node->weight_like(static_cast<int>(j)), "executor", n.label, ": input ", j,
            ": expected a value with a row for each token, got a parameter");
      uses.push_back({.position = static_cast<int>(at),
                      .input = static_cast<int>(j),
                      .parameter = graph.values()[n.inputs[j]].slot,
                      .use = n.parameter_use[j]});
    }
  }
  // Uses that do not lead to a loss have no gradient: only the other uses are numbered.
  std::map<int, std::vector<int>> numbers;  // by parameter, ascending
  for (const GradientUse& u : uses) numbers[u.parameter].push_back(u.use);
  for (auto& [parameter, all] : numbers) std::sort(all.begin(), all.end());
  for (GradientUse& u : uses) {
    const std::vector<int>& all = numbers[u.parameter];
    u.use = static_cast<int>(std::lower_bound(all.begin(), all.end(), u.use) - all.begin());
  }
  return uses;
}

std::vector<GradientBucket> cut_buckets(const Declarations& parameters, const std::vector<GradientUse>& uses,
                                        int64_t bytes) {
  std::vector<GradientBucket> buckets;
  GradientBucket next;
  int64_t taken = 0;
  for (const GradientUse& use : uses) {
    taken += parameters.at(use.parameter).size() * 4;
    ++next.end;
    if (taken < bytes) continue;
    buckets.push_back(next);
    next.begin = next.end;
    taken = 0;
  }
  if (next.begin < next.end) buckets.push_back(next);
  for (size_t b = 0; b < buckets.size(); ++b) {
    buckets[b].first = uses[buckets[b].begin].position;
    buckets[b].last = uses[buckets[std::min(b + 1, buckets.size() - 1)].end - 1].position;
  }
  return buckets;
}

}  // namespace mudd
