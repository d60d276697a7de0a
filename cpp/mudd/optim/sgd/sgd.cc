#include "mudd/optim/sgd/sgd.h"

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
  explicit Sgd(const OptimizerSettings& settings)
      : Elementwise(choose(sgd_rows()), settings),
        momentum_(settings.number("momentum")),
        nesterov_(settings.flag("nesterov")) {}
  UpdateFactors factors(const UpdateParameter& p, int64_t, double grad_scale) const override {
    return {.grad_scale = static_cast<float>(grad_scale),
            .momentum = static_cast<float>(momentum_),
            .decay = static_cast<float>(p.decay),
            .step_size = static_cast<float>(p.lr),
            .nesterov = nesterov_};
  }

 private:
  double momentum_;
  bool nesterov_;
};

}  // namespace

const OptimizerSpec& sgd_spec() {
  static const OptimizerSpec spec{
      .name = "sgd",
      .settings = {fraction("momentum", 0.9, "fraction of its moment that stays"),
                   {option::flag("nesterov", true,
                                 "step along gradient + momentum x moment; false: along the moment"),
                    "nesterov"}},
      .make = [](const OptimizerSettings& s) -> std::unique_ptr<Optimizer> { return sgd_optimizer(s); }};
  return spec;
}

std::unique_ptr<Elementwise> sgd_optimizer(const OptimizerSettings& settings) {
  return std::make_unique<Sgd>(settings);
}

namespace {

std::unique_ptr<Node> make_sgd(const Attributes& a) {
  UpdateParameter p;
  p.lr = a.number("lr");
  p.decay = a.number("decay");
  const double momentum = a.number("momentum");
  const OptimizerSettings s(sgd_spec(), {{"momentum", momentum}});
  const UpdateSlopes slopes = {{{static_cast<float>(1 - p.decay), 0},
                                {static_cast<float>(-p.lr * (1 + momentum)), 1},
                                {static_cast<float>(-p.lr * momentum * momentum), static_cast<float>(momentum)}}};
  return make_update_node({.op = "sgd",
                           .rows = sgd_rows(),
                           .factors = sgd_optimizer(s)->factors(p, 1, 1),
                           .backward = linear_backward(slopes)});
}

}  // namespace

const OpSpec& sgd_op() {
  static const OpSpec spec{
      .name = "sgd",
      .inputs = {{"w"}, {"gradient"}, {"moment"}},
      .outputs = {{"w"}, {"moment"}},
      .options = {option::number("lr", 1e-2, {}, "learning rate"),
                  option::number("momentum", 0.9, from_to_below(0, 1), "decay of the moment"),
                  option::number("decay", 0, {}, "fraction of w that is subtracted: lr weight_decay of torch")},
      .make = make_sgd,
  };
  return spec;
}

}  // namespace mudd
