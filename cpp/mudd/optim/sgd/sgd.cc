// sgd: gradient descent with Nesterov momentum, as torch.optim.SGD(nesterov=True) (Sutskever et al. 2013). The
// training step runs it over all parameters in its sweep (optim/update.h); as a node it is one update on arrays.
//
// Per element, in this order of fp32 roundings:
//   m = fma(momentum, m, g)                 g the summed gradient times grad_scale, as in adamw
//   w = fma(-decay, w, w)                   decoupled, unlike torch's weight_decay
//   w = fma(-lr, fma(momentum, m, g), w)   without Nesterov's look ahead (settings): w = fma(-lr, m, w)
//
// Node: inputs w, gradient, moment (fp32, one shape), outputs new w, new moment. Backward, dy and dm the
// gradients of the outputs:
//   dw = (1 - decay) dy,   dgradient = dm - lr (1 + momentum) dy,   dmoment = momentum dm - lr momentum^2 dy.
#include "mudd/optim/update_node.h"

namespace mudd {

MUDD_DECLARE_KERNELS(UpdateKernels, sgd_f32)

namespace {

const KernelRow<UpdateKernels> kRows[] = {MUDD_KERNEL_ROWS(sgd_f32)};

class Sgd final : public Elementwise {
 public:
  explicit Sgd(const OptimizerSettings& settings)
      : Elementwise(settings), momentum_(settings.number("momentum")), nesterov_(settings.flag("nesterov")) {}
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
      .help = "with Nesterov momentum",
      .settings = {fraction("momentum", 0.9, "fraction of its moment that stays"),
                   {option::flag("nesterov", true,
                                 "step along gradient + momentum x moment; false: along the moment"),
                    "nesterov"}},
      .rows = kRows,
      .make = make<Sgd>};
  return spec;
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
  return make_update_node(
      {.op = "sgd", .rows = kRows, .factors = Sgd(s).factors(p, 1, 1), .backward = linear_backward(slopes)});
}

}  // namespace

const OpSpec& sgd_op() {
  static const OpSpec spec{
      .name = "sgd",
      .help =
          R"(One update of SGD with Nesterov momentum (as torch.optim.SGD): (new w, new moment), float32 of one shape.

new moment = momentum moment + gradient; new w = w - lr (gradient + momentum new moment) - decay w.
Training runs the same kernel over all parameters in one sweep; this op is a single update.)",
      .backward_help =
          R"(((1 - decay) dw, dm - lr (1 + momentum) dw, momentum dm - lr momentum^2 dw). dw: the gradient of the new
weights, or a pair (dw, dm) with that of the new moment.)",
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
