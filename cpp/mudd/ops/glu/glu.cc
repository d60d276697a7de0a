#include "mudd/ops/glu/glu.h"

#include "mudd/graph/node.h"
#include "mudd/kernels/convert/wide_rows.h"

namespace mudd {

std::span<const KernelRow<GluKernels>> glu_rows() {
  static const KernelRow<GluKernels> rows[] = {MUDD_KERNEL_ROWS(glu_f32)};
  return rows;
}

namespace {

enum Input { kGate, kUp };

class Glu : public Node {
 public:
  explicit Glu(const Attributes& a) : kind_(a.choice<Activation>("activation")) {}

  const char* op() const override { return "glu"; }
  bool native_bf16() const override { return true; }
  bool cheap_to_recompute() const override { return true; }
  int in_place_input() const override { return kGate; }
  int gradient_in_place_input() const override { return kGate; }

  void infer(Inference& io) override {
    const TensorSpec &gate = io.input(kGate), &up = io.input(kUp);
    check(io.has_input(kGate) && io.has_input(kUp), "glu", "inputs: expected gate and up");
    check(is_real(gate), "glu", "gate: expected float32, got ", name_of(gate.dtype));
    check(is_real(up) && up.shape == gate.shape, "glu", "up: expected ", gate.text(), ", got ", up.text());
    io.output(gate);
    kernels_ = &choose(glu_rows());
  }

  void forward(const Run& run) override {
    const Tensor &gate = run.in(kGate), &up = run.in(kUp), &y = run.out(0);
    parallel_wide_rows({&gate, &up, &y}, [&](int64_t begin, int64_t end) {
      const WideRows gates(gate, begin, end), ups(up, begin, end);
      const NarrowRows to(y, begin, end);
      kernels_->fwd(begin, end, gate.cols, kind_, gates.base(), gates.stride(), ups.base(), ups.stride(),
                    to.base(), to.stride());
    });
  }

  void backward(const Run& run) override {
    const Tensor &gate = run.in(kGate), &up = run.in(kUp), &dy = run.dout(0);
    parallel_wide_rows({&gate, &up, &dy}, [&](int64_t begin, int64_t end) {
      const WideRows gates(gate, begin, end), ups(up, begin, end), from(dy, begin, end);
      const NarrowRows dgates(wanted(run, kGate), begin, end), dups(wanted(run, kUp), begin, end);
      kernels_->bwd(begin, end, gate.cols, kind_, gates.base(), gates.stride(), ups.base(), ups.stride(),
                    from.base(), from.stride(), {dgates.base(), dgates.stride(), run.accumulate(kGate) != 0},
                    {dups.base(), dups.stride(), run.accumulate(kUp) != 0});
    });
  }

 private:
  static Tensor wanted(const Run& run, int i) { return run.wants(i) ? run.din(i) : Tensor{}; }

  Activation kind_;
  const GluKernels* kernels_ = nullptr;
};

}  // namespace

const OpSpec& glu_op() {
  static const OpSpec spec{
      .name = "glu",
      .help = R"(y = act(gate) * up (Shazeer 2020). Shapes equal.)",
      .inputs = {{"gate"}, {"up"}},
      .outputs = {{"y"}},
      .options = {option::word("activation", "silu", activation_names(), "function of the gate")},
      .make = make<Glu>,
      .kernels = [] { return std::vector{chosen(glu_rows())}; },
  };
  return spec;
}

}  // namespace mudd
