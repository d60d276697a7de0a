#include "mudd/ops/layer_norm/layer_norm.h"

#include <algorithm>
#include <cmath>

#include "mudd/base/parallel.h"
#include "mudd/graph/node.h"
#include "mudd/graph/row_sums.h"
#include "mudd/kernels/convert/wide_rows.h"

namespace mudd {

std::span<const KernelRow<LayerNormKernels>> layer_norm_rows() {
  static const KernelRow<LayerNormKernels> rows[] = {MUDD_KERNEL_ROWS(layer_norm_f32)};
  return rows;
}

namespace {

enum Input { kX, kGain, kBias };

const float* optional(const Run& run, int i) { return run.has_in(i) ? run.in(i).f32() : nullptr; }

class LayerNorm : public Node {
 public:
  explicit LayerNorm(const Attributes& a) {
    options_.eps = static_cast<float>(a.number("eps"));
    options_.gain_offset = static_cast<float>(a.number("gain_offset"));
    options_.scale = static_cast<float>(a.number("scale"));
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

const OpSpec& layer_norm_op() {
  static const OpSpec spec{
      .name = "layer_norm",
      .help = R"(y = scale ((x - mean) / sqrt(var + eps) (gain_offset + gain) + bias) over the last axis.

Ba et al. 2016. x [..., D], gain and bias [D] (absent: ones and zeros).)",
      .inputs = {{"x"}, {"gain", OpInput::kOptional}, {"bias", OpInput::kOptional}},
      .outputs = {{"y"}},
      .options = {option::number("eps", 1e-5, at_least(0), "added to the variance"),
                  option::number("gain_offset", 0, {}, "added to the gain; 1: gain is the distance from 1"),
                  option::number("scale", 1, {}, "factor of the result")},
      .make = make<LayerNorm>,
      .kernels = [] { return std::vector{chosen(layer_norm_rows())}; },
  };
  return spec;
}

}  // namespace mudd
