#include "mudd/optim/adamw/adamw.h"

#include <algorithm>
#include <cmath>

#include "mudd/base/check.h"
#include "mudd/base/math.h"
#include "mudd/base/row_tasks.h"
#include "mudd/graph/node.h"
#include "mudd/optim/update.h"

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

enum Input { kWeights, kGradient, kFirst, kSecond };
constexpr const char* kNames[] = {"w", "gradient", "first", "second"};

// One update on arrays, for notebooks and tests.
class AdamwNode final : public Node {
 public:
  explicit AdamwNode(const UpdateFactors& factors) : f_(factors) {}
  const char* op() const override { return "adamw"; }

  void infer(Inference& io) override {
    const TensorSpec& w = io.input(kWeights);
    for (int i = 0; i < 4; ++i) {
      check(io.has_input(i), "adamw", kNames[i], ": missing");
      check(io.input(i).dtype == DType::f32 && io.input(i).shape == w.shape, "adamw", kNames[i],
            ": expected float32 of the shape of w, ", w.text(), ", got ", io.input(i).text());
    }
    for (int i = 0; i < 3; ++i) io.output(w);
  }

  void forward(const Run& run) override {
    const UpdateKernels& kernels = choose(adamw_rows());
    const Tensor& w = run.in(kWeights);
    constexpr int kFrom[] = {kWeights, kFirst, kSecond};
    parallel_rows(w.rows, w.cols, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        float* to[3];
        for (int i = 0; i < 3; ++i) {
          to[i] = run.out(i).f32() + r * run.out(i).stride;
          std::copy_n(run.in(kFrom[i]).f32() + r * run.in(kFrom[i]).stride, w.cols, to[i]);
        }
        const float* grads[1] = {run.in(kGradient).f32() + r * run.in(kGradient).stride};
        kernels.update(w.cols, to[0], to[1], to[2], grads, 1, f_);
      }
    });
  }

  void backward(const Run& run) override {
    const Tensor& g = run.in(kGradient);
    parallel_rows(g.rows, g.cols, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        for (int64_t c = 0; c < g.cols; ++c) element(run, r, c);
    });
  }

 private:
  static float at(const Tensor& t, int64_t r, int64_t c) { return t ? t.f32()[r * t.stride + c] : 0; }

  void element(const Run& run, int64_t r, int64_t c) const {
    const float g = at(run.in(kGradient), r, c), dw = at(run.dout(0), r, c);
    const float m = f_.beta1 * at(run.in(kFirst), r, c) + f_.one_minus_beta1 * g;
    const float v = f_.beta2 * at(run.in(kSecond), r, c) + f_.one_minus_beta2 * g * g;
    const float root = std::sqrt(v), divisor = root * f_.root_scale + f_.eps;
    const float dm = at(run.dout(1), r, c) - dw * f_.step_size / divisor;
    const float slope = root > 0 ? f_.step_size * m / (divisor * divisor) * f_.root_scale / (2 * root) : 0;
    const float dv = at(run.dout(2), r, c) + dw * slope;
    const float gradients[] = {dw - f_.decay * dw, f_.one_minus_beta1 * dm + 2 * f_.one_minus_beta2 * g * dv,
                               f_.beta1 * dm, f_.beta2 * dv};
    for (int i = 0; i < 4; ++i) {
      if (!run.wants(i)) continue;
      float& to = run.din(i).f32()[r * run.din(i).stride + c];
      to = run.accumulate(i) ? to + gradients[i] : gradients[i];
    }
  }

  UpdateFactors f_;
};

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
  return std::make_unique<AdamwNode>(adamw_optimizer(s)->factors(p, a.integer("step", 1), 1));
}

}  // namespace mudd
