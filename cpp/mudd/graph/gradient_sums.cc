#include "mudd/graph/gradient_sums.h"

#include <algorithm>

#include "mudd/base/check.h"
#include "mudd/base/shard_tree.h"

namespace mudd {
namespace {

// Levels of sums over the runs of a step. The last run adds to what waits in place, so it needs no level of its
// own.
int levels_for(int runs) { return std::max(1, shard_tree::levels(runs) - 1); }

}  // namespace

GradientSums::GradientSums(const Graph& graph, const Plan& plan, const ParamStore& store, int runs, bool by_rows)
    : runs_(runs), by_rows_(by_rows), sums_(store.count()), used_(store.count()) {
  check(runs <= 1 << kMaxGradAdds, "executor", "runs_per_step: expected at most ", 1 << kMaxGradAdds, ", got ",
        runs);
  int64_t bytes = 0;
  for (const PlanStep& s : plan.schedule) {
    if (s.phase != Phase::backward) continue;
    const GraphNode& n = graph.nodes()[s.node];
    for (size_t j = 0; j < n.inputs.size(); ++j) {
      if (n.parameter_use[j] < 0 || !graph.values()[n.inputs[j]].wants_gradient) continue;
      check(n.node->weight_like(static_cast<int>(j)), "executor", n.label, ": input ", j,
            " does not take a parameter, it is per token");
      const int p = graph.values()[n.inputs[j]].slot, use = n.parameter_use[j];
      if (static_cast<int>(sums_[p].size()) <= use) sums_[p].resize(use + 1);
      bytes = book(sums_[p][use], store.at(p), n.node->gradient_rows(static_cast<int>(j)), bytes);
    }
  }
  arena_ = Arena(bytes, store.booked_only());
  place();
}

// Books the sums of one use from `offset` on; returns where they end. rows_per_run: rows of the table that a run
// can touch, or 0. A sum over r runs has at most r times as many; given by them it also has a place for every row.
int64_t GradientSums::book(std::vector<Sum>& levels, const Parameter& parameter, int64_t rows_per_run,
                           int64_t offset) const {
  const int64_t rows = parameter.rows(), width = parameter.cols(), whole = aligned(parameter.size() * 4);
  const int64_t count = levels_for(runs_), place = aligned(rows * 4);
  const auto capacity = [&](int64_t level) {
    return std::min(rows, rows_per_run * (level + 1 < count ? int64_t{1} << level : runs_));
  };
  int64_t few = 0;
  for (int64_t level = 0; level < count; ++level) few += place + aligned(capacity(level) * width * 4);
  const bool by_rows = by_rows_ && rows_per_run > 0 && 2 * few <= count * whole;
  for (int64_t level = 0; level < count; ++level) {
    Sum sum;
    sum.offset = offset;
    if (by_rows) sum.rows = {.table_rows = rows, .width = width, .capacity = capacity(level)};
    offset += by_rows ? place + aligned(capacity(level) * width * 4) : whole;
    levels.push_back(sum);
  }
  return offset;
}

void GradientSums::place() {
  // Uses that do not lead to the loss have no gradient.
  for (size_t p = 0; p < sums_.size(); ++p)
    for (size_t use = 0; use < sums_[p].size(); ++use)
      if (!sums_[p][use].empty()) used_[p].push_back(static_cast<int>(use));
  for (auto& uses : sums_)
    for (std::vector<Sum>& levels : uses)
      for (Sum& sum : levels) {
        std::byte* at = arena_.data() + sum.offset;
        sum.rows.place = reinterpret_cast<int32_t*>(at);
        sum.rows.values = reinterpret_cast<float*>(at + aligned(sum.rows.table_rows * 4));
        if (sum.rows.capacity == 0) sum.all = reinterpret_cast<float*>(at);
      }
}

void GradientSums::point(GradSink& sink, int parameter, int use, int run) {
  std::vector<Sum>& level = sums_[parameter][use];
  const auto rows_of = [](Sum& sum) { return sum.all ? nullptr : &sum.rows; };
  sink.n_add = 0;
  shard_tree::each_waiting(run, runs_, [&](int i) {
    sink.add[sink.n_add] = level[i].all;
    sink.add_rows[sink.n_add++] = rows_of(level[i]);
  });
  Sum& last = level[std::min<size_t>(shard_tree::level_of(run, runs_), level.size() - 1)];
  sink.out = last.all;
  sink.out_rows = rows_of(last);
}

const RowGradient* GradientSums::rows(int parameter, int use) const {
  const Sum& sum = last(parameter, use);
  return sum.all ? nullptr : &sum.rows;
}

}  // namespace mudd
