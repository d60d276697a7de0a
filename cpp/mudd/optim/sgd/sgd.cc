#include "mudd/optim/sgd/sgd.h"

#include <cmath>

#include "mudd/base/check.h"
#include "mudd/optim/update_node.h"

namespace mudd {

std::span<const KernelRow<UpdateKernels>> sgd_rows() {
  static const KernelRow<UpdateKernels> rows[] = {
#define MUDD_KERNEL_LIST "mudd/optim/sgd/kernels.inc"
#include "mudd/base/kernel_rows.inc"
  };
  return rows;
}

namespace {

class Sgd final : public Elementwise {
 public:
  explicit Sgd(const OptimizerSettings& settings) : Elementwise(choose(sgd_rows()), settings) {}
  UpdateFactors factors(const UpdateParameter& p, int64_t, double grad_scale) const override {
    return {.grad_scale = static_cast<float>(grad_scale),
            .momentum = static_cast<float>(settings_.momentum),
            .decay = static_cast<float>(p.decay),
            .step_size = static_cast<float>(p.lr),
            .nesterov = settings_.nesterov};
  }
};

}  // namespace

std::unique_ptr<Elementwise> sgd_optimizer(const OptimizerSettings& settings) {
  return std::make_unique<Sgd>(settings);
}

std::unique_ptr<Node> make_sgd(const Attributes& a) {
  a.only("lr,momentum,decay");
  UpdateParameter p;
  OptimizerSettings s;
  p.lr = a.number("lr", 1e-2);
  p.decay = a.number("decay", 0.0);
  const double momentum = s.momentum = a.number("momentum", 0.9);
  check(std::isfinite(p.lr) && std::isfinite(p.decay), "sgd", "lr, decay: expected finite numbers");
  check(momentum >= 0 && momentum < 1, "sgd", "momentum: expected a number in [0, 1), got ", momentum);
  const UpdateSlopes slopes = {{{static_cast<float>(1 - p.decay), 0},
                                {static_cast<float>(-p.lr * (1 + momentum)), 1},
                                {static_cast<float>(-p.lr * momentum * momentum), static_cast<float>(momentum)}}};
  return make_update_node({.op = "sgd",
                           .rows = sgd_rows(),
                           .factors = sgd_optimizer(s)->factors(p, 1, 1),
                           .backward = linear_backward(slopes)});
}

}  // namespace mudd
