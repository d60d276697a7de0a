#include "mudd/train/step_totals.h"

#include <cmath>

#include "mudd/base/check.h"
#include "mudd/kernels/reduce/reduce.h"

namespace mudd {

Normalize parse_normalize(const std::string& name) {
  if (name == "valid") return Normalize::valid;
  if (name == "all_slots") return Normalize::all_slots;
  if (name == "micro_mean") return Normalize::micro_mean;
  fail("loss", "normalize: expected valid, all_slots or micro_mean, got '", name, "'");
}

void StepTotals::clear() {
  loss = count = aux = objective = slots = least_count = most_count = 0;
  stop = means = false;
  std::fill(metrics.begin(), metrics.end(), 0.0);
}

void StepTotals::add_count(double counted, bool first) {
  least_count = first ? counted : std::min(least_count, counted);
  most_count = first ? counted : std::max(most_count, counted);
}

StepReport judge(const StepTotals& totals, Normalize normalize, const StepLimits& limits) {
  StepReport report;
  report.stopped = totals.stop;
  report.flags = totals.flags;
  if (totals.stop) return report;
  check(normalize != Normalize::micro_mean || totals.means || totals.least_count == totals.most_count,
        "train_step", "loss.normalize=micro_mean over ranks needs micro-batches with equally many targets, got ",
        totals.least_count, " and ", totals.most_count, "; use valid, or one process");
  const bool slots = normalize == Normalize::all_slots || (normalize == Normalize::micro_mean && totals.means);
  const double divisor = slots ? totals.slots : std::max(1.0, totals.count);
  report.denominator = divisor;
  report.loss_sum = totals.loss;
  report.weight_sum = totals.count;
  report.aux_loss = totals.aux / divisor;
  report.loss = (totals.loss + totals.aux) / divisor;
  report.objective = (totals.objective + totals.aux) / divisor;
  report.grad_norm = std::sqrt(squared_norm(totals.norm_squares)) / divisor;
  report.finite = std::isfinite(report.objective) && std::isfinite(report.loss) && std::isfinite(report.grad_norm);
  report.spike = report.finite && (report.loss > limits.loss || report.grad_norm > limits.grad_norm);
  return report;
}

// The same as torch.nn.utils.clip_grad_norm_: the small constant avoids 0 / 0.
double clip_factor(double grad_norm, double limit) {
  return limit > 0 ? std::min(1.0, limit / (grad_norm + 1e-6)) : 1.0;
}

}  // namespace mudd
