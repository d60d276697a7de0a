#include "mudd/ops/glu/glu.h"

#include "mudd/graph/node.h"
#include "mudd/graph/row_tasks.h"

namespace mudd {

std::span<const KernelRow<GluKernels>> glu_rows() {
  static const KernelRow<GluKernels> rows[] = {
#define MUDD_KERNEL(name, level) {#name, #level, &level::name},
#include "mudd/ops/glu/kernels.inc"
#undef MUDD_KERNEL
  };
  return rows;
}

namespace {

enum Input { kGate, kUp };

class Glu : public Node {
 public:
  explicit Glu(const Attributes& a) : kind_(parse_activation(a.word("activation", "silu"), "glu")) {
    a.only("activation");
  }

  const char* op() const override { return "glu"; }
  bool cheap_to_recompute() const override { return true; }
  int in_place_input() const override { return kGate; }
  int gradient_in_place_input() const override { return kGate; }

  void infer(Inference& io) override {
    const TensorSpec &gate = io.input(kGate), &up = io.input(kUp);
    check(io.has_input(kGate) && io.has_input(kUp), "glu", "inputs: expected gate and up");
    check(gate.dtype == DType::f32, "glu", "gate: expected float32, got ", name_of(gate.dtype));
    check(up.dtype == DType::f32 && up.shape == gate.shape, "glu", "up: expected ", gate.text(), ", got ",
          up.text());
    io.output(gate);
    kernels_ = &choose(glu_rows());
  }

  void forward(const Run& run) override {
    const Tensor &gate = run.in(kGate), &up = run.in(kUp), &y = run.out(0);
    parallel_rows(gate.rows, gate.cols, [&](int64_t begin, int64_t end) {
      kernels_->fwd(begin, end, gate.cols, kind_, gate.f32(), gate.stride, up.f32(), up.stride, y.f32(), y.stride);
    });
  }

  void backward(const Run& run) override {
    const Tensor &gate = run.in(kGate), &up = run.in(kUp), &dy = run.dout(0);
    const GluGradient dgate = gradient(run, kGate), dup = gradient(run, kUp);
    parallel_rows(gate.rows, gate.cols, [&](int64_t begin, int64_t end) {
      kernels_->bwd(begin, end, gate.cols, kind_, gate.f32(), gate.stride, up.f32(), up.stride, dy.f32(),
                    dy.stride, dgate, dup);
    });
  }

 private:
  static GluGradient gradient(const Run& run, int i) {
    if (!run.wants(i)) return {nullptr, 0, false};
    return {run.din(i).f32(), run.din(i).stride, run.accumulate(i) != 0};
  }

  Activation kind_;
  const GluKernels* kernels_ = nullptr;
};

}  // namespace

std::unique_ptr<Node> make_glu(const Attributes& a) { return std::make_unique<Glu>(a); }

}  // namespace mudd
