#include "mudd/optim/adamw/adamw.h"

#include <algorithm>

#include "mudd/base/check.h"
#include "mudd/base/math.h"
#include "mudd/optim/update.h"

namespace mudd {

std::span<const KernelRow<UpdateKernels>> adamw_rows() {
  static const KernelRow<UpdateKernels> rows[] = {
#define MUDD_KERNEL(name, level) {#name, #level, &level::name},
#include "mudd/optim/adamw/kernels.inc"
#undef MUDD_KERNEL
  };
  return rows;
}

double bias_correction(double beta, int64_t t) {
  check(t >= 1, "adamw", "t: expected at least 1, got ", t);
  check(beta >= 0 && beta < 1, "adamw", "beta: expected a number in [0, 1), got ", beta);
  return 1 - math::pow(beta, static_cast<double>(std::min<int64_t>(t, int64_t{1} << 30)));
}

namespace {

class Adamw final : public Elementwise {
 public:
  explicit Adamw(const OptimizerSettings& settings) : Elementwise(choose(adamw_rows()), settings) {}
  int moments() const override { return 2; }
  UpdateFactors factors(const UpdateParameter& p, int64_t n, double grad_scale) const override {
    const double first = bias_correction(settings_.beta1, n), second = bias_correction(settings_.beta2, n);
    return {.grad_scale = static_cast<float>(grad_scale),
            .beta1 = static_cast<float>(settings_.beta1),
            .one_minus_beta1 = static_cast<float>(1 - settings_.beta1),
            .beta2 = static_cast<float>(settings_.beta2),
            .one_minus_beta2 = static_cast<float>(1 - settings_.beta2),
            .decay = static_cast<float>(p.decay),
            .step_size = static_cast<float>(p.lr / first),
            .root_scale = static_cast<float>(1 / math::sqrt(second)),
            .eps = static_cast<float>(p.eps)};
  }
};

}  // namespace

std::unique_ptr<Elementwise> adamw_optimizer(const OptimizerSettings& settings) {
  return std::make_unique<Adamw>(settings);
}

}  // namespace mudd
