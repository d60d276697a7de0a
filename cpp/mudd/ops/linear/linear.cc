#include "mudd/ops/linear/linear.h"

#include <algorithm>

#include "mudd/base/arena.h"
#include "mudd/graph/node.h"
#include "mudd/graph/right_operand.h"
#include "mudd/graph/row_sums.h"
#include "mudd/graph/sink_gradient.h"
#include "mudd/kernels/convert/wide_rows.h"
#include "mudd/kernels/gemm/of_tensors.h"
#include "mudd/ops/activation/activation.h"
#include "mudd/ops/linear/pre_gradient.h"

namespace mudd {

std::span<const KernelRow<LinearKernels>> linear_rows() {
  static const KernelRow<LinearKernels> rows[] = {MUDD_KERNEL_ROWS(linear_f32)};
  return rows;
}

void check_added(const Inference& io, const char* op, const TensorSpec& y, int bias, int residual) {
  if (io.has_input(bias))
    check(io.input(bias).dtype == DType::f32 && io.input(bias).shape == std::vector<int64_t>{y.cols()}, op,
          "bias: expected float32[", y.cols(), "], got ", io.input(bias).text());
  if (io.has_input(residual))
    check(is_real(io.input(residual)) && io.input(residual).shape == y.shape, op, "residual: expected ", y.text(),
          ", got ", io.input(residual).text());
}

namespace {

enum Input { kX, kW, kBias, kResidual };
enum Saved { kPre, kIsSlope };

class Linear : public Node {
 public:
  explicit Linear(const Attributes& a)
      : activation_(a.choice<Activation>("activation")),
        transposed_(a.flag("transposed")),
        full_precision_(a.flag("full_precision")) {}

  const char* op() const override { return "linear"; }
  bool native_bf16() const override { return true; }
  bool weight_like(int i) const override { return i == kW || i == kBias; }
  bool reads_stored(int i) const override { return i == kW; }
  bool backward_reads_input(int i) const override { return (i == kX && wants_w_) || (i == kW && wants_x_); }
  bool keeps_f32(int) const override { return full_precision_ || has_residual_; }
  int passes_gradient() const override { return has_residual_ ? kResidual : -1; }
  int in_place_input() const override { return has_residual_ ? kResidual : -1; }
  bool remakes_output() const override { return saves_pre_ && !has_residual_; }

  void infer(Inference& io) override {
    TensorSpec y = output_spec(io);
    const int64_t rows = y.rows();
    n_ = y.cols();
    k_ = io.input(kX).cols();
    flops_ = 2.0 * static_cast<double>(rows) * static_cast<double>(n_) * static_cast<double>(k_);
    has_residual_ = io.has_input(kResidual);
    wants_x_ = io.wants_gradient(kX);
    wants_w_ = io.wants_gradient(kW);
    backward_flops_ = flops_ * (int{wants_x_} + int{wants_w_});
    const bool wants_bias = io.wants_gradient(kBias), pre = activation_ != Activation::none;
    saves_pre_ = pre && (wants_x_ || wants_w_ || wants_bias);
    compute_ = io.compute();
    const int64_t number = size_of(compute_);  // bytes of one element of pre and dpre
    if (saves_pre_) {
      io.saved(rows * n_ * number);
      io.saved(sizeof(bool));  // whether these are slopes already
    }

    // Packed here, for forward and again for backward, or kept packed by the store.
    packs_ = io.packs_when_used(kW, rows);
    if (packs_) {
      io.scratch_forward(packed_bytes(k_, n_, compute_));
    } else {
      io.pack(kW, way(false));
      if (wants_x_) io.pack(kW, way(true));
    }
    // Backward: [dpre][bias sums][packed w][scratch of dw].
    bias_at_ = saves_pre_ ? aligned(rows * n_ * number) : 0;
    packed_at_ = bias_at_ + (wants_bias ? aligned(RowSums(io.shards(), rows, n_).bytes()) : 0);
    const int64_t packed = packs_ && wants_x_ ? packed_bytes(n_, k_, compute_) : 0;
    const int shards = io.shards().count();
    gradient_at_ = packed_at_ + aligned(packed);
    gradient_bytes_ = !wants_w_     ? 0
                      : transposed_ ? grad_scratch_bytes(n_, k_, shards, 1, compute_)
                                    : grad_scratch_bytes(k_, n_, shards, 1, compute_);
    io.scratch_backward(gradient_at_ + gradient_bytes_);
    io.output(std::move(y));
    kernels_ = &choose(linear_rows());
    activations_ = &choose(activation_rows());
  }

  void forward(const Run& run) override {
    const Tensor &x = run.in(kX), &y = run.out(0);
    GemmBlock g = matmul_of(x, y, compute_);
    right(run, false, run.scratch()).put(&g);
    g.epilogue.activation = activation_;
    g.epilogue.rounds_pre = compute_ == DType::bf16 && activation_ != Activation::none;
    if (run.has_in(kBias)) g.epilogue.bias = run.in(kBias).f32();
    if (saves_pre_) {
      g.epilogue.pre_activation = {run.saved(kPre), compute_};
      g.epilogue.pre_stride = n_;
      *run.saved_as<bool>(kIsSlope) = false;
    }
    if (run.has_in(kResidual)) add_residual(run.in(kResidual), &g);
    multiply(g);
  }

  void remake(const Run& run) override {
    const Tensor &y = run.out(0), pre{run.saved(kPre), y.rows, n_, n_, compute_};
    const bool slopes = compute_ == DType::f32;  // bf16 would round them
    parallel_wide_rows({&pre, &y}, [&](int64_t begin, int64_t end) {
      const WideRows from(pre, begin, end);
      const NarrowRows to(y, begin, end);
      for (int64_t r = begin; slopes && r < end; ++r)
        kernels_->remake(n_, activation_, from.row(r), to.row(r), pre.f32() + r * n_);
      if (!slopes)
        activations_->fwd(begin, end, n_, activation_, from.base(), from.stride(), to.base(), to.stride());
    });
    *run.saved_as<bool>(kIsSlope) = slopes;
  }

  void backward(const Run& run) override {
    const Tensor dpre = pre_gradient(run);
    const bool wants_w = run.wants(kW);
    if (!run.wants(kX)) {
      if (wants_w) weight_gradient(gradient_of_w(run, dpre).block);
      return;
    }
    const Tensor& dx = run.din(kX);
    GemmBlock g = matmul_of(dpre, dx, compute_);
    right(run, true, run.scratch() + packed_at_).put(&g);
    if (run.accumulate(kX)) add_residual(dx, &g);
    if (wants_w) multiply_beside(g, gradient_of_w(run, dpre).block);
    else multiply(g);
  }

 private:
  TensorSpec output_spec(const Inference& io) const {
    const TensorSpec &x = io.input(kX), &w = io.input(kW);
    check(is_real(x), "linear", "x: expected float32, got ", name_of(x.dtype));
    check(w.dtype == DType::f32, "linear", "w: expected float32, got ", name_of(w.dtype));
    check(!x.shape.empty() && x.cols() > 0, "linear", "x: expected at least one column, got ", x.text());
    check(w.shape.size() == 2 && w.cols() > 0, "linear", "w: expected a matrix, got ", w.text());
    const int64_t k = w.shape[transposed_ ? 1 : 0];
    check(k == x.cols(), "linear", "w: expected ", x.cols(), transposed_ ? " columns" : " rows",
          " as x has columns, got ", w.text());
    TensorSpec y = x;
    y.shape.back() = w.shape[transposed_ ? 0 : 1];
    check(y.cols() > 0, "linear", "w: expected at least one output, got ", w.text());
    check_added(io, "linear", y, kBias, kResidual);
    return y;
  }

  // Return the packing of w for the GEMM of forward, or of backward (dx).
  Pack way(bool backward) const { return transposed_ != backward ? Pack::transposed : Pack::plain; }

  RightOperand right(const Run& run, bool backward, std::byte* scratch) const {
    return {"linear", run, kW, way(backward), packs_ ? scratch : nullptr};
  }

  // Return dpre (dy itself without an activation); compute the gradient of the bias.
  Tensor pre_gradient(const Run& run) const {
    const Tensor& dy = run.dout(0);
    PreGradient g{.dy = dy, .activation = activation_};
    if (saves_pre_) {
      g.pre = {run.saved(kPre), dy.rows, n_, n_, compute_};
      g.dpre = {run.scratch(), dy.rows, n_, n_, compute_};
      g.pre_is_slope = *run.saved_as<bool>(kIsSlope);
    }
    make_pre_gradient(g, run.shards(), run.wants(kBias) ? run.sink(kBias) : GradSink{},
                      reinterpret_cast<float*>(run.scratch() + bias_at_));
    return saves_pre_ ? g.dpre : dy;
  }

  // dw = x^T dpre, or dpre^T x for a transposed w.
  SinkGradient gradient_of_w(const Run& run, const Tensor& dpre) const {
    const Tensor& x = run.in(kX);
    const Tensor &left = transposed_ ? dpre : x, &right = transposed_ ? x : dpre;
    return {"linear",        left,         right,
            run.shards(),    run.sink(kW), reinterpret_cast<float*>(run.scratch() + gradient_at_),
            gradient_bytes_, compute_};
  }

  Activation activation_;
  bool transposed_, full_precision_;
  bool has_residual_ = false, wants_x_ = true, wants_w_ = true, saves_pre_ = false, packs_ = true;
  DType compute_ = DType::f32;
  int64_t k_ = 0, n_ = 0;
  int64_t bias_at_ = 0, packed_at_ = 0, gradient_at_ = 0;  // bytes into the scratch of backward
  int64_t gradient_bytes_ = 0;                             // planned for dw
  const LinearKernels* kernels_ = nullptr;
  const ActivationKernels* activations_ = nullptr;
};

}  // namespace

const OpSpec& linear_op() {
  static const OpSpec spec{
      .name = "linear",
      .help = R"(y = act(x w + bias) + residual.

x [..., K], w [K, N] (transposed: [N, K]), bias [N], residual like y.)",
      .inputs = {{"x"}, {"w"}, {"bias", OpInput::kOptional}, {"residual", OpInput::kOptional}},
      .outputs = {{"y"}},
      .options = {option::word("activation", "none", activation_names(), "function of x w + bias"),
                  option::flag("transposed", false, "w is [N, K]"),
                  option::flag("full_precision", false, "y stays fp32 in a bf16 graph, as with a residual")},
      .make = make<Linear>,
      .kernels =
          [] {
            return std::vector{chosen(linear_rows()), chosen(activation_rows()), chosen(gemm_rows(DType::f32)),
                               chosen(gemm_rows(DType::bf16))};
          },
  };
  return spec;
}

}  // namespace mudd
