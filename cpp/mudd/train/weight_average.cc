#include "mudd/train/weight_average.h"

#include <algorithm>
#include <cstring>

#include "mudd/base/check.h"
#include "mudd/base/parallel.h"

namespace mudd {
namespace {

constexpr int64_t kBlock = 16384;  // elements of a task: weights and average fill half of a common L2

int64_t blocks(const Part& part) { return (part.size() + kBlock - 1) / kBlock; }

}  // namespace

WeightAverage::WeightAverage(Executor& executor, GradientSync& sync, int plane)
    : executor_(executor), sync_(sync), plane_(plane) {
  ParamStore& store = executor_.store();
  std::vector<Part> parts;
  for (int i : store.parameters().trained()) parts.push_back(sync.part(i));
  if (plane_ < 0) plane_ = store.planes().add(DType::f32, parts);
  check(plane_ >= 1 && plane_ < store.planes().count() && store.planes().dtype(plane_) == DType::f32, "train_step",
        "average_plane: expected the plane of an earlier step like this one");
  for (const Part& part : parts) {
    if (part.size() == 0) continue;
    check(store.planes().held(plane_, part.parameter).size() == part.size(), "train_step",
          store.parameters().at(part.parameter).name, ": has no average in plane ", plane_);
    pieces_.push_back({.part = part,
                       .weights = store.planes().master_at(part.parameter, part.begin),
                       .average = store.planes().floats(plane_, part.parameter),
                       .first_task = tasks_});
    tasks_ += blocks(part);
  }
}

// Call body(weights, average, elements) for blocks of all pieces, by all threads.
template <class Body>
void WeightAverage::over_blocks(Body body) const {
  parallel_for(tasks_, [&](int64_t task, int) {
    const auto after = std::upper_bound(pieces_.begin(), pieces_.end(), task,
                                        [](int64_t t, const AveragedPart& piece) { return t < piece.first_task; });
    const AveragedPart& piece = *(after - 1);
    const int64_t at = (task - piece.first_task) * kBlock;
    body(piece.weights + at, piece.average + at, std::min(kBlock, piece.part.size() - at));
  });
}

void WeightAverage::add(double weight) {
  check(weight > 0 && weight <= 1, "train_step", "average: expected a weight above 0 and at most 1, got ", weight);
  const float factor = static_cast<float>(weight);
  over_blocks([&](const float* w, float* average, int64_t n) {
    if (weight == 1) std::memcpy(average, w, static_cast<size_t>(n) * sizeof(float));
    else
      for (int64_t i = 0; i < n; ++i) average[i] = average[i] + factor * (w[i] - average[i]);
  });
}

void WeightAverage::swap() {
  over_blocks([](float* w, float* average, int64_t n) { std::swap_ranges(w, w + n, average); });
  for (const AveragedPart& piece : pieces_) executor_.store().packs().repack(piece.part);
  sync_.finish_update(true);
  sync_.settle();
}

}  // namespace mudd
