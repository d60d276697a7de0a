// Runs of an executor that an observer sees.
#include <utility>

#include "mudd/base/row_tasks.h"
#include "mudd/graph/executor.h"

namespace mudd {
namespace {

// Add the waiting sums to the gradient of one graph run, as a GradSink says: out = add[n-1] + (... + (add[0] +
// sum)).
void add_waiting(const GradSink& sink, const float* sum, int64_t elements) {
  parallel_rows(elements, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float v = sum[i];
      for (int k = 0; k < sink.n_add; ++k) v = sink.add[k][i] + v;
      sink.out[i] = v;
    }
  });
}

}  // namespace

void Executor::observe(std::shared_ptr<NodeObserver> observer) {
  observer_ = std::move(observer);
  if (!observed()) separate_ = {};
}

// Run a position whose weight gradients go to separate memory, show them, and then add them to their sums. A row
// list, and a gradient without an earlier one, is written in place.
void Executor::observed_position(Workspace& workspace, size_t position, int run) {
  Run& bound = workspace.bound(position);
  struct Separate {
    const GradientUse* use;
    GradSink sink;
    int64_t begin, elements;  // in separate_
  };
  std::vector<Separate> separate;
  int64_t end = 0;
  for (const GradientUse& use : plan_.gradients) {
    if (use.position != static_cast<int>(position)) continue;
    const GradSink& sink = bound.sink_[use.input];
    if (sink.n_add == 0 || !sink.out) continue;
    separate.push_back({&use, sink, end, shown_.elements(use, sink)});
    end += separate.back().elements;
  }
  if (end > std::ssize(separate_)) separate_.resize(static_cast<size_t>(end));
  for (const Separate& s : separate) {
    bound.sink_[s.use->input].out = separate_.data() + s.begin;
    bound.sink_[s.use->input].n_add = 0;
  }
  const auto show = [&](auto&& to) {
    if (options_.check_finite) to(finite_);
    if (observer_) to(*observer_);
  };
  run_position(workspace, position);
  show([&](NodeObserver& o) { shown_.node(workspace, position, run, o); });
  for (const Separate& s : separate) {
    add_waiting(s.sink, separate_.data() + s.begin, s.elements);
    bound.sink_[s.use->input] = s.sink;
    show([&](NodeObserver& o) { shown_.sum(*s.use, s.sink.out, s.elements, run, o); });
  }
}

}  // namespace mudd
