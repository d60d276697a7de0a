// The values that a training step shows to an observer, in addition to its graph runs.
#include <utility>

#include "mudd/train/step.h"

namespace mudd {
namespace {

Tensor flat(void* data, int64_t elements, DType dtype) {
  return {.data = data, .rows = 1, .cols = elements, .stride = elements, .dtype = dtype};
}

}  // namespace

void TrainStep::observe(std::shared_ptr<NodeObserver> observer) {
  executor_.observe(observer);
  observer_ = std::move(observer);
}

void TrainStep::show_state() {
  sync_->settle();  // weights that are still in transit
  executor_.shown().weights(*observer_);
  update_.show(StepStage::state, *sync_, *observer_);
}

// Show the totals over all ranks, of the elements that are updated here. A single process has shown them already.
void TrainStep::show_sums() {
  const ParamStore& store = executor_.store();
  GradientSums& sums = executor_.gradients();
  for (int i = 0; sync_->ranks() > 1 && i < store.parameters().count(); ++i) {
    const Part part = sync_->part(i);
    for (int use = 0; part.size() > 0 && use < sums.uses(i); ++use) {
      std::vector<float> rows;
      float* total = sync_->rows(i, use) ? nullptr : const_cast<float*>(sums.whole(i, use)) + part.begin;
      if (!total) {
        rows.resize(static_cast<size_t>(part.size()));
        sync_->rows(i, use)->copy(part.begin, part.size(), rows.data());
        total = rows.data();
      }
      observer_->see(
          {.stage = StepStage::sum,
           .run = executor_.runs_per_step() - 1,
           .place = store.parameters().at(i).name,
           .op = "sum over ranks",
           .value = use == 0 ? "gradient of all ranks" : "gradient of all ranks, use " + std::to_string(use + 1),
           .shape = {part.size()},
           .tensor = flat(total, part.size(), DType::f32),
           .begin = part.begin});
    }
  }
}

void TrainStep::show_number(const char* name, double& number) {
  if (!observer_) return;
  observer_->see({.stage = StepStage::step,
                  .place = "step",
                  .op = name,
                  .value = name,
                  .shape = {1},
                  .tensor = flat(&number, 1, DType::f64)});
}

void TrainStep::show_numbers(StepReport& report) {
  show_number("loss", report.loss);
  show_number("count of targets", report.denominator);
  show_number("gradient norm", report.grad_norm);
}

void WeightUpdate::show(StepStage stage, const GradientSync& sync, NodeObserver& observer) const {
  constexpr const char* kNames[] = {"first moment", "second moment", "row moment", "column moment", "row update"};
  const ParamStore& store = executor_.store();
  const auto see = [&](int i, const char* value, void* data, const Part& part, PlaneAxis axis, DType dtype) {
    const Parameter& p = store.parameters().at(i);
    const std::vector<int64_t> shape = shape_in(axis, p);
    const bool whole = part.size() == TensorSpec{.shape = shape}.size();
    observer.see({.stage = stage,
                  .place = p.name,
                  .op = groups_[group_[i]].optimizer->spec().name,
                  .value = value,
                  .shape = whole ? shape : std::vector<int64_t>{part.size()},
                  .tensor = flat(data, part.size(), dtype),
                  .begin = part.begin});
  };
  for (int i : store.parameters().trained()) {
    const Part part = sync.part(i);
    if (part.size() == 0 || executor_.gradients().uses(i) == 0) continue;
    if (stage == StepStage::update)
      see(i, "weight", store.planes().master_at(i, part.begin), part, PlaneAxis::elements, DType::f32);
    for (size_t k = 0; k < moments_.size(); ++k)
      if (store.planes().holds(moments_[k], i))
        see(i, kNames[k], store.planes().data(moments_[k], i), store.planes().held(moments_[k], i),
            store.planes().axis(moments_[k]), store.planes().dtype(moments_[k]));
  }
}

}  // namespace mudd
