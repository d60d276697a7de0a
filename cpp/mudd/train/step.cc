#include "mudd/train/step.h"

#include <utility>

#include "mudd/base/check.h"

namespace mudd {
namespace {

// Return the gradient of every parameter that has one, in store order; blocks are counted over whole
// parameters.
std::vector<GradientPlanes> gradient_planes(const Executor& executor, const GradientSync& sync, int64_t* blocks) {
  const ParamStore& store = executor.store();
  const GradientSums& sums = executor.gradients();
  std::vector<GradientPlanes> gradients;
  for (int i = 0; i < store.parameters().count(); ++i) {
    if (sums.uses(i) == 0) continue;
    const Part part = sync.part(i);
    GradientPlanes g{.n_planes = sums.uses(i),
                     .begin = part.begin,
                     .n = part.size(),
                     .first_block = *blocks + part.begin / kNormBlock};
    for (int use = 0; use < g.n_planes; ++use) {
      g.planes[use] = sums.whole(i, use);
      g.rows[use] = sync.rows(i, use);
    }
    *blocks += norm_blocks(store.parameters().at(i).size());
    if (g.n > 0) gradients.push_back(g);
  }
  return gradients;
}

}  // namespace

TrainStep::TrainStep(Executor& executor, const SummedValues& values, const TrainStepOptions& options,
                     std::shared_ptr<GradientSync> sync)
    : executor_(executor),
      options_(options),
      sync_(sync ? std::move(sync) : std::make_shared<GradientSync>(executor)),
      accumulate_(executor, values, options.part, options.normalize == Normalize::micro_mean),
      update_(executor, options.update, *sync_),
      clock_(*sync_, options.now) {
  if (options.average) average_.emplace(executor, *sync_, options.average_plane);
  size_t metrics = 0;
  for (ValueId v : values.metrics) metrics += static_cast<size_t>(executor.graph().values().at(v).spec.cols());
  totals_.metrics.assign(metrics, 0.0);
  int64_t blocks = 0;
  gradients_ = gradient_planes(executor, *sync_, &blocks);
  totals_.norm_squares.assign(static_cast<size_t>(blocks), 0.0);
}

WeightAverage& TrainStep::average() {
  check(average_.has_value(), "train_step", "average: expected a step that keeps an average");
  return *average_;
}

StepReport TrainStep::run(const StepInput& input, int64_t updates, double lr, const FillRun& fill,
                          const StepLimits& limits, uint32_t flags, double average) {
  StepInput seeded = input;
  seeded.seed = options_.seed;
  totals_.flags = flags;
  if (observer_) show_state();
  clock_.start();
  accumulate_.run(seeded, fill, *sync_, totals_, clock_);
  sync_->enter(dist::Phase::reduce, input.step);
  sync_->finish_gradients(totals_.stop);
  clock_.lap(&StepSeconds::messages);
  if (observer_ && !totals_.stop) show_sums();
  if (!totals_.stop) block_squares(gradients_, totals_.norm_squares);
  // Before the exchange: no process updates shared weights until all processes have exchanged their totals.
  executor_.store().before_change();
  clock_.lap(&StepSeconds::update);
  sync_->enter(dist::Phase::verdict, input.step);
  sync_->exchange(totals_);
  clock_.lap(&StepSeconds::messages);
  StepReport report = judge(totals_, options_.normalize, limits);
  if (!report.accepted()) return report;
  if (observer_) show_numbers(report);
  double clip = clip_factor(report.grad_norm, options_.clip);
  show_number("clip factor", clip);
  show_number("rate", lr);
  sync_->enter(dist::Phase::update, input.step);
  const bool finite = update_.run(updates, lr, clip / report.denominator);
  if (observer_) update_.show(StepStage::update, *sync_, *observer_);
  if (average > 0) this->average().add(average);
  clock_.lap(&StepSeconds::update);
  sync_->enter(dist::Phase::gather, input.step);
  report.spoilt = !sync_->finish_update(finite);
  clock_.lap(&StepSeconds::messages);
  return report;
}

}  // namespace mudd
