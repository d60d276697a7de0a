#include "mudd/ops/dropout/dropout.h"

#include <string>

#include "mudd/graph/node.h"
#include "mudd/kernels/convert/wide_rows.h"

namespace mudd {

std::span<const KernelRow<DropoutKernels>> dropout_rows() {
  static const KernelRow<DropoutKernels> rows[] = {MUDD_KERNEL_ROWS(dropout_f32)};
  return rows;
}

namespace {

enum Input { kX, kResidual };

class DropoutNode final : public Node {
 public:
  explicit DropoutNode(const Attributes& a) : rate_(a.number("rate")), purpose_(a.word("purpose")) {}

  const char* op() const override { return "dropout"; }
  bool native_bf16() const override { return true; }
  bool backward_reads_input(int) const override { return false; }
  int passes_gradient() const override { return has_residual_ ? kResidual : -1; }
  int in_place_input() const override { return has_residual_ ? kResidual : kX; }

  void infer(Inference& io) override {
    const TensorSpec& x = io.input(kX);
    check(io.has_input(kX) && is_real(x) && x.shape.size() == 3, "dropout", "x: expected float32[B, T, D], got ",
          x.text());
    has_residual_ = io.has_input(kResidual);
    check(!has_residual_ || (is_real(io.input(kResidual)) && io.input(kResidual).shape == x.shape), "dropout",
          "residual: expected ", x.text(), ", got ", has_residual_ ? io.input(kResidual).text() : "");
    drops_ = rate_ > 0 && io.wants_gradient(kX);
    time_ = x.shape[1];
    io.output(x);
    kernels_ = &choose(dropout_rows());
  }

  void forward(const Run& run) override {
    apply(run, run.in(kX), has_residual_ ? run.in(kResidual) : Tensor{}, run.out(0));
  }

  void backward(const Run& run) override {
    if (!run.wants(kX)) return;
    apply(run, run.dout(0), run.accumulate(kX) ? run.din(kX) : Tensor{}, run.din(kX));
  }

 private:
  void apply(const Run& run, const Tensor& x, const Tensor& base, const Tensor& y) const {
    const Dropout draws =
        drops_ ? Dropout(rate_, run.step().seed, purpose_, run.step().step, run.step().first_sample) : Dropout();
    parallel_wide_rows({&y, &x, &base}, [&](int64_t begin, int64_t end) {
      const WideRows from(x, begin, end), added(base, begin, end);
      const NarrowRows to(y, begin, end);
      kernels_->apply(draws, {begin, end, y.cols, time_, from.base(), from.stride(), base ? added.base() : nullptr,
                              base ? added.stride() : 0, to.base(), to.stride()});
    });
  }

  double rate_;
  std::string purpose_;
  bool has_residual_ = false, drops_ = false;
  int64_t time_ = 1;
  const DropoutKernels* kernels_ = nullptr;
};

}  // namespace

const OpSpec& dropout_op() {
  static const OpSpec spec{
      .name = "dropout",
      .help =
          R"(y = residual + m x / (1 - rate) (Srivastava et al. 2014), m one with probability 1 - rate, else zero.

x and residual are [B, T, D]. If no gradient of x is computed, y = residual + x. The random draws depend only on
seed, `purpose`, step, sample, position and channel.)",
      .backward_help = R"(The draws are those of the forward pass.)",
      .inputs = {{"x"}, {"residual", OpInput::kOptional}},
      .outputs = {{"y"}},
      .options = {option::number("rate", 0, from_to_below(0, 1), "probability of dropping an element"),
                  option::word("purpose", "dropout", {}, "key of the random draws")},
      .make = make<DropoutNode>,
      .kernels = [] { return std::vector{chosen(dropout_rows())}; },
  };
  return spec;
}

}  // namespace mudd
