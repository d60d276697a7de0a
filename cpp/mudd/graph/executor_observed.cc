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

void Executor::observe(std::shared_ptr<NodeObserver> observer) { observer_ = std::move(observer); }

// Run a position whose weight gradients go to separate memory, show them, and then add them to their sums. A row
// list, and a gradient without an earlier one, is written in place.
void Executor::observed_position(Workspace& workspace, size_t position, int run) {
  Run& bound = workspace.bound(position);
  struct Separate {
    const GradientUse* use;
    GradSink sink;
    std::vector<float> gradient;
  };
  std::vector<Separate> separate;
  for (const GradientUse& use : plan_.gradients) {
    const bool here = use.position == static_cast<int>(position);
    if (!here || bound.sink_[use.input].n_add == 0 || !bound.sink_[use.input].out) continue;
    GradSink& sink = bound.sink_[use.input];
    separate.push_back({&use, sink, std::vector<float>(static_cast<size_t>(shown_.elements(use, sink)))});
    sink.out = separate.back().gradient.data();
    sink.n_add = 0;
  }
  const auto show = [&](auto&& to) {
    if (options_.check_finite) to(finite_);
    if (observer_) to(*observer_);
  };
  run_position(workspace, position);
  show([&](NodeObserver& o) { shown_.node(workspace, position, run, o); });
  for (Separate& s : separate) {
    const int64_t n = std::ssize(s.gradient);
    add_waiting(s.sink, s.gradient.data(), n);
    bound.sink_[s.use->input] = s.sink;
    show([&](NodeObserver& o) { shown_.sum(*s.use, s.sink.out, n, run, o); });
  }
}

}  // namespace mudd
