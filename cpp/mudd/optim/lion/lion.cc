// lion: the update of Chen et al. 2023, arXiv 2302.06675 (docs/maths/optimizers.md, 3). The training step runs it
// over all parameters in its sweep (optim/update.h); as a node it is one update on arrays.
//
// Per element, in this order of fp32 roundings:
//   d = fma(1 - beta1, g, beta1 * m)        g the summed gradient times grad_scale, as in adamw
//   m = fma(1 - beta2, g, beta2 * m)
//   w = fma(-decay, w, w)
//   w = fma(-lr, sign(d), w)                sign(0) = 0
//
// Node: inputs w, gradient, moment (fp32, one shape), outputs new w, new moment. Backward, dy and dm the
// gradients of the outputs (the sign is flat):
//   dw = (1 - decay) dy,   dgradient = (1 - beta2) dm,   dmoment = beta2 dm.
#include "mudd/optim/update_node.h"

namespace mudd {

MUDD_DECLARE_KERNELS(UpdateKernels, lion_f32)

namespace {

const KernelRow<UpdateKernels> kRows[] = {MUDD_KERNEL_ROWS(lion_f32)};

class Lion final : public Elementwise {
 public:
  explicit Lion(const OptimizerSettings& settings)
      : Elementwise(settings), beta1_(settings.number("beta1")), beta2_(settings.number("beta2")) {}
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
  static const OptimizerSpec spec{.name = "lion",
                                  .help = "steps by the sign of its moment",
                                  .settings = {fraction("beta1", 0.9, "weight of the moment in the direction"),
                                               fraction("beta2", 0.95, "decay of its moment")},
                                  .rows = kRows,
                                  .make = make<Lion>};
  return spec;
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
  return make_update_node(
      {.op = "lion", .rows = kRows, .factors = Lion(s).factors(p, 1, 1), .backward = linear_backward(slopes)});
}

}  // namespace

const OpSpec& lion_op() {
  static const OpSpec spec{
      .name = "lion",
      .help = R"(One update of Lion (Chen et al. 2023): (new w, new moment), float32 arrays of one shape.

new w = w - lr sign(beta1 moment + (1 - beta1) gradient) - decay w,
new moment = beta2 moment + (1 - beta2) gradient.
Training runs the same kernel over all parameters in one sweep; this op is a single update.)",
      .backward_help =
          R"(((1 - decay) dw, (1 - beta2) dm, beta2 dm); the sign is flat. dw: the gradient of the new weights, or a pair
(dw, dm) with that of the new moment.)",
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
