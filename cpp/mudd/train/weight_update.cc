#include "mudd/train/weight_update.h"

#include "mudd/base/check.h"

namespace mudd {

WeightUpdate::WeightUpdate(Executor& executor, const UpdateOptions& options)
    : executor_(executor), options_(options) {
  const ParamStore& store = executor_.store();
  const GradientSums& sums = executor_.gradients();
  for (int i = 0; i < store.count(); ++i)
    check(sums.uses(i) <= kMaxGradientUses, "train_step", store.at(i).name, ": expected at most ",
          kMaxGradientUses, " uses, got ", sums.uses(i));
  book_moments();
  for (int i = 0; i < store.count(); ++i)
    for (int64_t s = 0; sums.uses(i) > 0 && s < store.at(i).stack(); ++s) add_matrix(i, s);
}

void WeightUpdate::book_moments() {
  ParamStore& store = executor_.store();
  moments_ = options_.moment_planes;
  const auto needed = static_cast<size_t>(moments_of(options_.optimizer));
  check(moments_.empty() || moments_.size() == needed, "train_step", "moment_planes: expected ", needed, ", got ",
        moments_.size());
  for (size_t k = 0; k < moments_.size(); ++k)
    check(moments_[k] >= 1 && moments_[k] < store.planes() &&
              store.plane_dtype(moments_[k]) == (k == 0 ? options_.moment : DType::f32),
          "train_step", "moment_planes: plane ", moments_[k], " is none of an earlier step like this one");
  for (size_t k = moments_.size(); k < needed; ++k)
    moments_.push_back(store.add_plane(k == 0 ? options_.moment : DType::f32, store.trained()));
}

// Matrix s of the stack that parameter i is (most are stacks of one).
void WeightUpdate::add_matrix(int i, int64_t s) {
  const ParamStore& store = executor_.store();
  const GradientSums& sums = executor_.gradients();
  const Parameter& p = store.at(i);
  for (int plane : moments_)
    check(store.holds(plane, i), "train_step", p.name, ": trains in this graph, but has no moments in plane ",
          plane);
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

bool WeightUpdate::run(int64_t updates, double lr, double grad_scale) {
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
