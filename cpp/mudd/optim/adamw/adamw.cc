#include "mudd/optim/adamw/adamw.h"

#include <algorithm>
#include <cmath>

#include "mudd/base/check.h"
#include "mudd/base/math.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/optim/adamw/factors.h"
#include "mudd/optim/update_node.h"

namespace mudd {

MUDD_DECLARE_KERNELS(UpdateKernels, adamw_f32)

double bias_correction(double beta, int64_t t) {
  check(t >= 1, "adamw", "t: expected at least 1, got ", t);
  check(beta >= 0 && beta < 1, "adamw", "beta: expected a number in [0, 1), got ", beta);
  return 1 - math::pow(beta, static_cast<double>(std::min<int64_t>(t, int64_t{1} << 30)));
}

namespace {

const KernelRow<UpdateKernels> kRows[] = {MUDD_KERNEL_ROWS(adamw_f32)};

class Adamw final : public Elementwise {
 public:
  explicit Adamw(const OptimizerSettings& settings)
      : Elementwise(settings),
        beta1_(settings.number("beta1")),
        beta2_(settings.number("beta2")),
        eps_root_(settings.number("eps_root")),
        factored_(settings.word("second_moment") == "factored") {
    check(!factored_ || settings.second() == DType::f32, "adamw",
          "second: expected float32 with second_moment=factored, got ", name_of(settings.second()));
  }
  bool factored() const override { return factored_; }
  int64_t scratch_bytes(std::span<const UpdateParameter> matrices) const override {
    return factors_bytes(matrices);
  }
  bool update(std::span<UpdateParameter> matrices, int64_t n, double grad_scale,
              std::byte* scratch) const override {
    if (factored_) update_factors(matrices, kernels_, beta2_, grad_scale, scratch);
    return Elementwise::update(matrices, n, grad_scale, scratch);
  }
  UpdateFactors factors(const UpdateParameter& p, int64_t n, double grad_scale) const override {
    const double first = bias_correction(beta1_, n), second = bias_correction(beta2_, n);
    return {.grad_scale = static_cast<float>(grad_scale),
            .beta1 = static_cast<float>(beta1_),
            .one_minus_beta1 = static_cast<float>(1 - beta1_),
            // With factors, the v that the kernel gets is the new one.
            .beta2 = p.row_moment ? 1.0f : static_cast<float>(beta2_),
            .one_minus_beta2 = p.row_moment ? 0.0f : static_cast<float>(1 - beta2_),
            .decay = static_cast<float>(p.decay),
            .step_size = static_cast<float>(p.lr / first),
            .root_scale = static_cast<float>(1 / math::sqrt(second)),
            .eps = static_cast<float>(p.eps),
            .eps_root = static_cast<float>(eps_root_ * second),
            .offset = cut_offset(n)};
  }

 private:
  double beta1_, beta2_, eps_root_;
  bool factored_;
};

}  // namespace

// adam_pax of the MUDDFormer code has the same arithmetic (docs/maths/optimizers.md, 2).
const OptimizerSpec& adamw_spec() {
  static const OptimizerSpec spec{
      .name = "adamw",
      .help = "also by its name in the MUDDFormer code, adam_pax",
      .aliases = {"adam_pax"},
      .moments = 2,
      .narrow_second = true,
      .settings = {fraction("beta1", 0.9, "decay of the first moment"),
                   fraction("beta2", 0.95, "decay of the second moment"),
                   {option::number("eps_root", 0, at_least(0),
                                   "added to the bias-corrected second moment inside the square root"),
                    "eps_root"},
                   {option::word(
                        "second_moment", "full", {"full", "factored"},
                        "second moment of a matrix; full = one number for each weight; factored = one for "
                        "each row and each column, as in Adafactor (docs/maths/optimizers.md)"),
                    "second_moment"}},
      .rows = kRows,
      .make = make<Adamw>};
  return spec;
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
  // -0 as the second term leaves every first term unchanged.
  return {{{e.dw - f.decay * e.dw, -0.0f}, {dgradient, -0.0f}, {f.beta1 * dm, -0.0f}, {f.beta2 * dv, -0.0f}}};
}

std::unique_ptr<Node> make_adamw(const Attributes& a) {
  UpdateParameter p;
  p.lr = a.number("lr");
  p.decay = a.number("decay");
  p.eps = a.number("eps");
  const OptimizerSettings s(adamw_spec(), {{"beta1", a.number("beta1")}, {"beta2", a.number("beta2")}});
  const UpdateFactors f = Adamw(s).factors(p, a.integer("step"), 1);
  return make_update_node({.op = "adamw",
                           .rows = kRows,
                           .moments = 2,
                           .factors = f,
                           .backward_reads_inputs = true,
                           .backward = [f](const UpdateElement& e) { return adamw_backward(f, e); }});
}

}  // namespace

const OpSpec& adamw_op() {
  static const OpSpec spec{
      .name = "adamw",
      .help =
          R"(One update of AdamW (as torch.optim.AdamW): (new w, new first, new second), float32 arrays of one shape.

Training runs the same kernel over all parameters in one sweep; this op is a single update.)",
      .backward_help =
          R"(cpp/mudd/optim/adamw/adamw.h has the formula. dw: the gradient of the new weights, or a tuple (dw, dfirst,
dsecond) with those of the new moments.)",
      .inputs = {{"w"}, {"gradient"}, {"first"}, {"second"}},
      .outputs = {{"w"}, {"first"}, {"second"}},
      .options = {option::number("lr", 1e-3, {}, "learning rate"),
                  option::number("beta1", 0.9, from_to_below(0, 1), "decay of the first moment"),
                  option::number("beta2", 0.95, from_to_below(0, 1), "decay of the second moment"),
                  option::number("eps", 1e-8, {}, "epsilon in the denominator"),
                  option::number("decay", 0, {}, "fraction of w that is subtracted: lr weight_decay of torch"),
                  option::integer("step", 1, at_least(1), "number of the update")},
      .make = make_adamw,
  };
  return spec;
}

}  // namespace mudd
