#include "mudd/ops/activation/activation.h"

#include "mudd/graph/node.h"
#include "mudd/kernels/convert/wide_rows.h"

namespace mudd {

std::span<const KernelRow<ActivationKernels>> activation_rows() {
  static const KernelRow<ActivationKernels> rows[] = {MUDD_KERNEL_ROWS(activation_f32)};
  return rows;
}

namespace {

std::vector<std::string> all_names() {
  std::vector<std::string> names = activation_names();
  names.insert(names.end(), std::begin(kPointwiseNames), std::end(kPointwiseNames));
  return names;
}

class ActivationNode : public Node {
 public:
  explicit ActivationNode(const Attributes& a) : pointwise_(find_pointwise(a.word("activation"))) {
    if (!pointwise_) kind_ = a.choice<Activation>("activation");
  }

  const char* op() const override { return "activation"; }
  bool native_bf16() const override { return true; }
  bool cheap_to_recompute() const override { return true; }
  int in_place_input() const override { return 0; }
  int gradient_in_place_input() const override { return 0; }

  void infer(Inference& io) override {
    const TensorSpec& x = io.input(0);
    check(io.has_input(0), "activation", "inputs: expected x");
    check(is_real(x), "activation", "x: expected float32, got ", name_of(x.dtype));
    io.output(x);
    kernels_ = &choose(activation_rows());
  }

  void forward(const Run& run) override {
    const Tensor &x = run.in(0), &y = run.out(0);
    parallel_wide_rows({&x, &y}, [&](int64_t begin, int64_t end) {
      const WideRows from(x, begin, end);
      const NarrowRows to(y, begin, end);
      if (pointwise_)
        kernels_->pointwise_fwd(begin, end, x.cols, *pointwise_, from.base(), from.stride(), to.base(),
                                to.stride());
      else kernels_->fwd(begin, end, x.cols, kind_, from.base(), from.stride(), to.base(), to.stride());
    });
  }

  void backward(const Run& run) override {
    const Tensor &x = run.in(0), &dy = run.dout(0);
    if (!run.wants(0)) return;
    const Tensor& dx = run.din(0);
    parallel_wide_rows({&x, &dy}, [&](int64_t begin, int64_t end) {
      const WideRows at(x, begin, end), from(dy, begin, end);
      const NarrowRows to(dx, begin, end);
      if (pointwise_)
        kernels_->pointwise_bwd(begin, end, x.cols, *pointwise_, at.base(), at.stride(), from.base(),
                                from.stride(), to.base(), to.stride(), run.accumulate(0));
      else
        kernels_->bwd(begin, end, x.cols, kind_, at.base(), at.stride(), from.base(), from.stride(), to.base(),
                      to.stride(), run.accumulate(0));
    });
  }

 private:
  std::optional<Pointwise> pointwise_;
  Activation kind_ = Activation::none;  // used if pointwise_ is none
  const ActivationKernels* kernels_ = nullptr;
};

}  // namespace

const OpSpec& activation_op() {
  static const OpSpec spec{
      .name = "activation",
      .help = R"(y = act(x), element by element.)",
      .inputs = {{"x"}},
      .outputs = {{"y"}},
      .options = {option::word("activation", "gelu_tanh", all_names(),
                               "function; the functions after squared_relu are as in jax.nn")},
      .make = make<ActivationNode>,
      .kernels = [] { return std::vector{chosen(activation_rows())}; },
  };
  return spec;
}

}  // namespace mudd
