#include "mudd/optim/lion/lion.h"

#include <cmath>

#include "mudd/base/check.h"
#include "mudd/optim/update_node.h"

namespace mudd {

std::span<const KernelRow<UpdateKernels>> lion_rows() {
  static const KernelRow<UpdateKernels> rows[] = {
#define MUDD_KERNEL_LIST "mudd/optim/lion/kernels.inc"
#include "mudd/base/kernel_rows.inc"
  };
  return rows;
}

namespace {

class Lion final : public Elementwise {
 public:
  explicit Lion(const OptimizerSettings& settings) : Elementwise(choose(lion_rows()), settings) {}
  UpdateFactors factors(const UpdateParameter& p, int64_t, double grad_scale) const override {
    return {.grad_scale = static_cast<float>(grad_scale),
            .beta1 = static_cast<float>(settings_.beta1),
            .one_minus_beta1 = static_cast<float>(1 - settings_.beta1),
            .beta2 = static_cast<float>(settings_.beta2),
            .one_minus_beta2 = static_cast<float>(1 - settings_.beta2),
            .decay = static_cast<float>(p.decay),
            .step_size = static_cast<float>(p.lr)};
  }
};

}  // namespace

std::unique_ptr<Elementwise> lion_optimizer(const OptimizerSettings& settings) {
  return std::make_unique<Lion>(settings);
}

std::unique_ptr<Node> make_lion(const Attributes& a) {
  a.only("lr,beta1,beta2,decay");
  UpdateParameter p;
  OptimizerSettings s;
  p.lr = a.number("lr", 1e-4);
  p.decay = a.number("decay", 0.0);
  s.beta1 = a.number("beta1", 0.9);
  s.beta2 = a.number("beta2", 0.99);
  check(std::isfinite(p.lr) && std::isfinite(p.decay), "lion", "lr, decay: expected finite numbers");
  check(s.beta1 >= 0 && s.beta1 < 1 && s.beta2 >= 0 && s.beta2 < 1, "lion",
        "beta1, beta2: expected numbers in [0, 1), got ", s.beta1, ", ", s.beta2);
  const UpdateSlopes slopes = {{{static_cast<float>(1 - p.decay), 0},
                                {0, static_cast<float>(1 - s.beta2)},
                                {0, static_cast<float>(s.beta2)}}};
  return make_update_node({.op = "lion",
                           .rows = lion_rows(),
                           .factors = lion_optimizer(s)->factors(p, 1, 1),
                           .backward = linear_backward(slopes)});
}

}  // namespace mudd
