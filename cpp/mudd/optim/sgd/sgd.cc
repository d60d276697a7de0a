#include "mudd/optim/sgd/sgd.h"

#include <cmath>

#include "mudd/base/check.h"
#include "mudd/optim/update_node.h"

namespace mudd {

std::span<const KernelRow<UpdateKernels>> sgd_rows() {
  static const KernelRow<UpdateKernels> rows[] = {
#define MUDD_KERNEL(name, level) {#name, #level, &level::name},
#include "mudd/optim/sgd/kernels.inc"
#undef MUDD_KERNEL
  };
  return rows;
}

std::unique_ptr<Node> make_sgd(const Attributes& a) {
  a.only("lr,momentum,decay");
  UpdateParameter p;
  UpdateScalars s;
  p.lr = a.number("lr", 1e-2);
  p.decay = a.number("decay", 0.0);
  const double momentum = s.beta1 = a.number("momentum", 0.9);
  check(std::isfinite(p.lr) && std::isfinite(p.decay), "sgd", "lr, decay: expected finite numbers");
  check(momentum >= 0 && momentum < 1, "sgd", "momentum: expected a number in [0, 1), got ", momentum);
  return make_update_node("sgd", sgd_rows(), update_factors(Optimizer::sgd, p, s),
                          {static_cast<float>(1 - p.decay), static_cast<float>(-p.lr * (1 + momentum)), 1,
                           static_cast<float>(-p.lr * momentum * momentum), static_cast<float>(momentum)});
}

}  // namespace mudd
