#include "mudd/train/step.h"

#include <algorithm>
#include <cmath>

#include "mudd/base/check.h"
#include "mudd/kernels/reduce/reduce.h"
#include "mudd/train/stop.h"

namespace mudd {

Normalize parse_normalize(const std::string& name) {
  if (name == "valid") return Normalize::valid;
  if (name == "all_slots") return Normalize::all_slots;
  if (name == "micro_mean") return Normalize::micro_mean;
  fail("loss", "normalize: expected valid, all_slots or micro_mean, got '", name, "'");
}

TrainStep::TrainStep(Executor& executor, ValueId loss, ValueId count, const TrainStepOptions& options)
    : executor_(executor), loss_(loss), count_(count), options_(options) {
  check(executor.graph().training(), "train_step", "graph: expected one recorded for training");
  ParamStore& store = executor_.store();
  moments_ = options.moment_planes;
  const auto needed = static_cast<size_t>(moments_of(options_.optimizer));
  check(moments_.empty() || moments_.size() == needed, "train_step", "moment_planes: expected ", needed, ", got ",
        moments_.size());
  for (size_t k = 0; k < moments_.size(); ++k)
    check(moments_[k] >= 1 && moments_[k] < store.planes() &&
              store.plane_dtype(moments_[k]) == (k == 0 ? options_.moment : DType::f32),
          "train_step", "moment_planes: plane ", moments_[k], " is none of an earlier step like this one");
  const GradientSums& sums = executor_.gradients();
  for (int i = 0; i < store.count(); ++i)
    check(sums.uses(i) <= kMaxGradientUses, "train_step", store.at(i).name, ": expected at most ",
          kMaxGradientUses, " uses, got ", sums.uses(i));
  for (size_t k = moments_.size(); k < needed; ++k)
    moments_.push_back(store.add_plane(k == 0 ? options_.moment : DType::f32));
  size_t figures = 0;
  for (ValueId v : options_.figures) figures += static_cast<size_t>(executor.graph().values().at(v).spec.cols());
  figure_sums_.assign(figures, 0.0);
  for (int i = 0; i < store.count(); ++i) {
    if (sums.uses(i) == 0) continue;
    const Parameter& p = store.at(i);
    for (int64_t s = 0; s < p.stack(); ++s) add_matrix(i, s);
    GradientPlanes g{.n_planes = sums.uses(i), .n = p.size()};
    for (int use = 0; use < g.n_planes; ++use) {
      g.planes[use] = sums.whole(i, use);
      g.rows[use] = sums.rows(i, use);
    }
    gradients_.push_back(g);
  }
  block_sums_.assign(static_cast<size_t>(norm_blocks(gradients_)), 0.0);
}

// Matrix s of the stack that parameter i is (most are stacks of one).
void TrainStep::add_matrix(int i, int64_t s) {
  const ParamStore& store = executor_.store();
  const GradientSums& sums = executor_.gradients();
  const Parameter& p = store.at(i);
  const int64_t at = s * p.matrix_rows() * p.cols();
  UpdateParameter a{};
  a.rows = p.matrix_rows();
  a.cols = p.cols();
  a.w = store.master(i) + at;
  a.n_grads = sums.uses(i);
  for (int use = 0; use < a.n_grads; ++use) {
    a.grad_rows[use] = sums.rows(i, use);
    if (!a.grad_rows[use]) a.grads[use] = sums.whole(i, use) + at;
  }
  a.m = store.plane_data(moments_[0], i) + at * size_of(options_.moment);
  if (moments_.size() > 1) a.v = store.plane(moments_[1], i) + at;
  a.packed = store.compute();
  a.eps = options_.eps * p.eps_scale;
  parameters_.push_back(a);
  indices_.push_back(i);
  in_stack_.push_back(s);
}

void TrainStep::add_figures() {
  double* sum = figure_sums_.data();
  for (ValueId v : options_.figures) {
    const Tensor t = executor_.value(v);
    for (int64_t r = 0; r < t.rows; ++r)
      for (int64_t c = 0; c < t.cols; ++c) sum[c] += static_cast<double>(t.f32()[r * t.stride + c]);
    sum += t.cols;
  }
}

namespace {

double shards_of(const Executor& executor, ValueId id) {
  const Tensor t = executor.value(id);
  return shard_sum(static_cast<double*>(t.data), static_cast<int>(t.rows * t.cols));
}

}  // namespace

StepReport TrainStep::run(const StepInput& input, int64_t updates, double lr, const FillRun& fill,
                          const StepLimits& limits) {
  StepReport report;
  double first_count = -1, aux_sum = 0;
  std::fill(figure_sums_.begin(), figure_sums_.end(), 0.0);
  const int64_t samples = executor_.graph().shards().samples();
  const int runs = executor_.runs_per_step();
  for (int r = 0; r < runs; ++r) {
    if (stop_requested()) {
      report.stopped = true;
      return report;
    }
    fill(r, executor_);
    StepInput own = input;
    own.seed = options_.seed;
    own.first_sample = (input.step * runs + r) * samples;
    executor_.run(own, r);
    const double counted = shards_of(executor_, count_);
    report.loss_sum = losses_.add(r, runs, shards_of(executor_, loss_));
    if (options_.aux != kAbsent) aux_sum = aux_losses_.add(r, runs, shards_of(executor_, options_.aux));
    add_figures();
    report.weight_sum = counts_.add(r, runs, counted);
    if (r == 0) first_count = counted;
    check(options_.normalize != Normalize::micro_mean || counted == first_count, "train_step",
          "loss.normalize=micro_mean needs micro-batches with equally many targets, got ", first_count, " and ",
          counted, "; use valid");
  }
  const double divisor = denominator(report.weight_sum);
  report.aux_loss = aux_sum / divisor;
  report.loss = (report.loss_sum + aux_sum) / divisor;
  report.grad_norm = std::sqrt(squared_norm(gradients_, block_sums_.data())) / divisor;
  report.finite = std::isfinite(report.loss) && std::isfinite(report.grad_norm);
  report.spike = report.finite && (report.loss > limits.loss || report.grad_norm > limits.grad_norm);
  if (!report.finite || report.spike) return report;
  // As torch.nn.utils.clip_grad_norm_: the small constant keeps 0 / 0 away.
  const double clip = options_.clip > 0 ? std::min(1.0, options_.clip / (report.grad_norm + 1e-6)) : 1.0;
  report.spoilt = !update(updates, lr, clip / divisor);
  return report;
}

double TrainStep::denominator(double weight_sum) const {
  if (options_.normalize != Normalize::all_slots) return std::max(1.0, weight_sum);
  const Tensor targets = executor_.value(executor_.input("targets"));
  return static_cast<double>(targets.rows * targets.cols * executor_.runs_per_step());
}

bool TrainStep::update(int64_t updates, double lr, double grad_scale) {
  const ParamStore& store = executor_.store();
  const double schedule = options_.peak_lr > 0 ? lr / options_.peak_lr : 0;
  for (size_t k = 0; k < parameters_.size(); ++k) {
    const Parameter& p = store.at(indices_[k]);
    const double rate = lr * p.lr_scale;
    parameters_[k].lr = rate;
    parameters_[k].decay = (p.decay_independent ? schedule : rate) * options_.weight_decay * p.decay_scale;
    // Copies that decoding asked for since the last step are refreshed from now on.
    const auto packed = [&](Pack how) -> std::byte* {
      std::byte* panels = store.packed(indices_[k], how);
      return panels ? panels + in_stack_[k] * store.packed_stride(indices_[k], how) : nullptr;
    };
    parameters_[k].packed_plain = packed(Pack::plain);
    parameters_[k].packed_transposed = packed(Pack::transposed);
  }
  return update_step(options_.optimizer, options_.moment, parameters_,
                     {.beta1 = options_.beta1,
                      .beta2 = options_.beta2,
                      .bias_correction1 = bias_correction(options_.beta1, updates + 1),
                      .bias_correction2 = bias_correction(options_.beta2, updates + 1),
                      .grad_scale = grad_scale});
}

}  // namespace mudd
