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
  explicit Lion(const OptimizerSettings& settings)
      : Elementwise(choose(lion_rows()), settings),
        beta1_(settings.number("beta1")),
        beta2_(settings.number("beta2")) {}
  UpdateFactors factors(const UpdateParameter& p, int64_t, double grad_scale) const override {
    return {.grad_scale = static_cast<float>(grad_scale),
            .beta1 = static_cast<float>(beta1_),
            .one_minus_beta1 = static_cast<float>(1 - beta1_),
            .beta2 = static_cast<float>(beta2_),
            .one_minus_beta2 = static_cast<float>(1 - beta2_),
            .decay = static_cast<float>(p.decay),
            .step_size = static_cast<float>(p.lr)};
  }

 private:
  double beta1_, beta2_;
};

}  // namespace

const OptimizerSpec& lion_spec() {
  static const OptimizerSpec spec{
      .name = "lion",
      .settings = {fraction("beta1", 0.9, "weight of the moment in the direction"),
                   fraction("beta2", 0.95, "decay of its moment")},
      .make = [](const OptimizerSettings& s) -> std::unique_ptr<Optimizer> { return lion_optimizer(s); }};
  return spec;
}

std::unique_ptr<Elementwise> lion_optimizer(const OptimizerSettings& settings) {
  return std::make_unique<Lion>(settings);
}

std::unique_ptr<Node> make_lion(const Attributes& a) {
  a.only("lr,beta1,beta2,decay");
  UpdateParameter p;
  p.lr = a.number("lr", 1e-4);
  p.decay = a.number("decay", 0.0);
  const double beta2 = a.number("beta2", 0.99);
  const OptimizerSettings s(lion_spec(), {{"beta1", a.number("beta1", 0.9)}, {"beta2", beta2}});
  check(std::isfinite(p.lr) && std::isfinite(p.decay), "lion", "lr, decay: expected finite numbers");
  const UpdateSlopes slopes = {
      {{static_cast<float>(1 - p.decay), 0}, {0, static_cast<float>(1 - beta2)}, {0, static_cast<float>(beta2)}}};
  return make_update_node({.op = "lion",
                           .rows = lion_rows(),
                           .factors = lion_optimizer(s)->factors(p, 1, 1),
                           .backward = linear_backward(slopes)});
}

}  // namespace mudd
