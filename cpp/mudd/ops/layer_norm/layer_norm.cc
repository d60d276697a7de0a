#include "mudd/ops/layer_norm/layer_norm.h"

#include <algorithm>
#include <cmath>

#include "mudd/base/parallel.h"
#include "mudd/graph/node.h"
#include "mudd/graph/row_sums.h"
#include "mudd/kernels/convert/wide_rows.h"

namespace mudd {

std::span<const KernelRow<LayerNormKernels>> layer_norm_rows() {
  static const KernelRow<LayerNormKernels> rows[] = {
#define MUDD_KERNEL_LIST "mudd/ops/layer_norm/kernels.inc"
#include "mudd/base/kernel_rows.inc"
  };
  return rows;
}

namespace {

enum Input { kX, kGain, kBias };

const float* optional(const Run& run, int i) { return run.has_in(i) ? run.in(i).f32() : nullptr; }

class LayerNorm : public Node {
 public:
  explicit LayerNorm(const Attributes& a) {
    a.only("eps,gain_offset,scale");
    options_.eps = static_cast<float>(a.number("eps", 1e-5));
    options_.gain_offset = static_cast<float>(a.number("gain_offset", 0));
    options_.scale = static_cast<float>(a.number("scale", 1));
    check(options_.eps >= 0, "layer_norm", "eps: expected a number >= 0, got ", options_.eps);
    check(std::isfinite(options_.gain_offset) && std::isfinite(options_.scale), "layer_norm",
          "gain_offset and scale: expected finite numbers");
  }

  const char* op() const override { return "layer_norm"; }
  bool native_bf16() const override { return true; }
  bool cheap_to_recompute() const override { return true; }
  bool weight_like(int i) const override { return i == kGain || i == kBias; }
  bool backward_reads_input(int i) const override { return i != kBias; }
  int gradient_in_place_input() const override { return kX; }

  void infer(Inference& io) override {
    const TensorSpec& x = io.input(kX);
    check(is_real(x), "layer_norm", "x: expected float32, got ", name_of(x.dtype));
    check(!x.shape.empty() && x.cols() > 0, "layer_norm", "x: expected at least one column, got ", x.text());
    for (int i : {kGain, kBias})
      if (io.has_input(i))
        check(io.input(i).shape == std::vector<int64_t>{x.cols()} && io.input(i).dtype == DType::f32, "layer_norm",
              i == kGain ? "gain" : "bias", ": expected float32[", x.cols(), "], got ", io.input(i).text());
    io.output(x);
    io.saved(2 * x.rows() * static_cast<int64_t>(sizeof(float)));
    const int sums = int(io.wants_gradient(kGain)) + int(io.wants_gradient(kBias));
    io.scratch_backward(sums * RowSums(io.shards(), x.rows(), x.cols()).bytes());
    kernels_ = &choose(layer_norm_rows());
  }

  void forward(const Run& run) override {
    const Tensor &x = run.in(kX), &y = run.out(0);
    parallel_for((x.rows + kRowBlock - 1) / kRowBlock, [&](int64_t task, int) {
      const int64_t begin = task * kRowBlock, end = std::min(begin + kRowBlock, x.rows);
      const WideRows from(x, begin, end);
      const NarrowRows to(y, begin, end);
      kernels_->fwd(begin, end, x.cols, from.base(), from.stride(), optional(run, kGain), optional(run, kBias),
                    options_, to.base(), to.stride(), run.saved_as<float>(0));
    });
  }

  void backward(const Run& run) override {
    const Tensor &x = run.in(kX), &dy = run.dout(0);
    const bool wants_gain = run.wants(kGain), wants_bias = run.wants(kBias);
    const RowSums sums(run.shards(), x.rows, x.cols);
    float* gains = run.scratch_as<float>();
    float* biases = gains + (wants_gain ? sums.bytes() / static_cast<int64_t>(sizeof(float)) : 0);
    parallel_for(sums.blocks(), [&](int64_t task, int) {
      int64_t begin = 0, end = 0;
      sums.range(task, &begin, &end);
      const WideRows at(x, begin, end), from(dy, begin, end);
      const NarrowRows to(run.wants(kX) ? run.din(kX) : Tensor{}, begin, end);
      kernels_->bwd(begin, end, x.cols, at.base(), at.stride(), optional(run, kGain), options_,
                    run.saved_as<float>(0), from.base(), from.stride(), to.base(), to.stride(),
                    run.wants(kX) && run.accumulate(kX), wants_gain ? sums.partial(gains, task) : nullptr,
                    wants_bias ? sums.partial(biases, task) : nullptr);
    });
    if (wants_gain) sums.finish(gains, run.sink(kGain));
    if (wants_bias) sums.finish(biases, run.sink(kBias));
  }

 private:
  LayerNormOptions options_;
  const LayerNormKernels* kernels_ = nullptr;
};

}  // namespace

std::unique_ptr<Node> make_layer_norm(const Attributes& a) { return std::make_unique<LayerNorm>(a); }

}  // namespace mudd
