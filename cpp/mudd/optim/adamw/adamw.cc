#include "mudd/optim/adamw/adamw.h"

#include <algorithm>
#include <cmath>

#include "mudd/base/check.h"
#include "mudd/base/math.h"
#include "mudd/optim/update_node.h"

namespace mudd {

std::span<const KernelRow<UpdateKernels>> adamw_rows() {
  static const KernelRow<UpdateKernels> rows[] = {
#define MUDD_KERNEL_LIST "mudd/optim/adamw/kernels.inc"
#include "mudd/base/kernel_rows.inc"
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
            .eps = static_cast<float>(p.eps),
            .eps_root = static_cast<float>(settings_.eps_root * second)};
  }
};

}  // namespace

std::unique_ptr<Elementwise> adamw_optimizer(const OptimizerSettings& settings) {
  return std::make_unique<Adamw>(settings);
}

namespace {

// The formulas of adamw.h.
UpdateGradients adamw_backward(const UpdateFactors& f, const UpdateElement& e) {
  const float m = f.beta1 * e.first + f.one_minus_beta1 * e.gradient;
  const float v = f.beta2 * e.second + f.one_minus_beta2 * e.gradient * e.gradient;
  const float root = std::sqrt(v), divisor = root * f.root_scale + f.eps;
  const float dm = e.dfirst - e.dw * f.step_size / divisor;
  const float slope = root > 0 ? f.step_size * m / (divisor * divisor) * f.root_scale / (2 * root) : 0;
  const float dv = e.dsecond + e.dw * slope;
  const float dgradient = f.one_minus_beta1 * dm + 2 * f.one_minus_beta2 * e.gradient * dv;
  // -0 as the second term leaves every first one as it is.
  return {{{e.dw - f.decay * e.dw, -0.0f}, {dgradient, -0.0f}, {f.beta1 * dm, -0.0f}, {f.beta2 * dv, -0.0f}}};
}

}  // namespace

std::unique_ptr<Node> make_adamw(const Attributes& a) {
  a.only("lr,beta1,beta2,eps,decay,step");
  UpdateParameter p;
  OptimizerSettings s;
  p.lr = a.number("lr", 1e-3);
  p.decay = a.number("decay", 0.0);
  p.eps = a.number("eps", 1e-8);
  s.beta1 = a.number("beta1", 0.9);
  s.beta2 = a.number("beta2", 0.95);
  check(std::isfinite(p.lr) && std::isfinite(p.decay) && std::isfinite(p.eps), "adamw",
        "lr, decay, eps: expected finite numbers");
  const UpdateFactors f = adamw_optimizer(s)->factors(p, a.integer("step", 1), 1);
  return make_update_node({.op = "adamw",
                           .rows = adamw_rows(),
                           .moments = 2,
                           .factors = f,
                           .backward_reads_inputs = true,
                           .backward = [f](const UpdateElement& e) { return adamw_backward(f, e); }});
}

}  // namespace mudd
