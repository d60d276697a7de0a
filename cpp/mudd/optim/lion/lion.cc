#include "mudd/optim/lion/lion.h"

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
      : Elementwise(lion_rows(), settings), beta1_(settings.number("beta1")), beta2_(settings.number("beta2")) {}
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
      .help = "steps by the sign of its moment",
      .settings = {fraction("beta1", 0.9, "weight of the moment in the direction"),
                   fraction("beta2", 0.95, "decay of its moment")},
      .make = [](const OptimizerSettings& s) -> std::unique_ptr<Optimizer> { return lion_optimizer(s); }};
  return spec;
}

std::unique_ptr<Elementwise> lion_optimizer(const OptimizerSettings& settings) {
  return std::make_unique<Lion>(settings);
}

namespace {

std::unique_ptr<Node> make_lion(const Attributes& a) {
  UpdateParameter p;
  p.lr = a.number("lr");
  p.decay = a.number("decay");
  const double beta2 = a.number("beta2");
  const OptimizerSettings s(lion_spec(), {{"beta1", a.number("beta1")}, {"beta2", beta2}});
  const UpdateSlopes slopes = {
      {{static_cast<float>(1 - p.decay), 0}, {0, static_cast<float>(1 - beta2)}, {0, static_cast<float>(beta2)}}};
  return make_update_node({.op = "lion",
                           .rows = lion_rows(),
                           .factors = lion_optimizer(s)->factors(p, 1, 1),
                           .backward = linear_backward(slopes)});
}

}  // namespace

const OpSpec& lion_op() {
  static const OpSpec spec{
      .name = "lion",
      .inputs = {{"w"}, {"gradient"}, {"moment"}},
      .outputs = {{"w"}, {"moment"}},
      .options = {option::number("lr", 1e-4, {}, "learning rate"),
                  option::number("beta1", 0.9, from_to_below(0, 1), "weight of the moment in the sign"),
                  option::number("beta2", 0.99, from_to_below(0, 1), "decay of the moment"),
                  option::number("decay", 0, {}, "fraction of w that is subtracted: lr weight_decay of torch")},
      .make = make_lion,
  };
  return spec;
}

}  // namespace mudd
