#include "mudd/ops/rms_norm/rms_norm.h"

#include <algorithm>
#include <numeric>

#include "mudd/base/parallel.h"
#include "mudd/graph/node.h"
#include "mudd/graph/row_sums.h"
#include "mudd/kernels/convert/wide_rows.h"

namespace mudd {

std::span<const KernelRow<RmsNormKernels>> rms_norm_rows() {
  static const KernelRow<RmsNormKernels> rows[] = {MUDD_KERNEL_ROWS(rms_norm_f32)};
  return rows;
}

namespace {

enum Input { kX, kGain };

class RmsNorm : public Node {
 public:
  explicit RmsNorm(const Attributes& a)
      : eps_(static_cast<float>(a.number("eps"))),
        gain_offset_(static_cast<float>(a.number("gain_offset"))),
        heads_(a.integer("heads")) {}

  const char* op() const override { return "rms_norm"; }
  bool native_bf16() const override { return true; }
  bool cheap_to_recompute() const override { return true; }
  bool weight_like(int i) const override { return i == kGain; }
  int gradient_in_place_input() const override { return kX; }

  void infer(Inference& io) override {
    const TensorSpec& x = io.input(kX);
    check(is_real(x), "rms_norm", "x: expected float32, got ", name_of(x.dtype));
    check(!x.shape.empty() && x.cols() > 0, "rms_norm", "x: expected at least one column, got ", x.text());
    check(x.cols() % heads_ == 0, "rms_norm", "x: expected a last axis divisible by ", heads_, " heads, got ",
          x.text());
    width_ = x.cols() / heads_;
    const TensorSpec& gain = io.input(kGain);
    single_ = io.has_input(kGain) && gain.shape == std::vector<int64_t>{1} && width_ > 1;
    if (io.has_input(kGain))
      check(gain.shape == std::vector<int64_t>{single_ ? 1 : width_} && gain.dtype == DType::f32, "rms_norm",
            "gain: expected float32[", width_, "] or float32[1], got ", gain.text());
    io.output(x);
    io.saved(x.rows() * heads_ * static_cast<int64_t>(sizeof(float)));
    const RowSums sums(io.shards(), x.rows() * heads_, single_ ? 1 : width_);
    folded_ = io.wants_gradient(kGain) ? sums.bytes() : 0;
    const int64_t row = width_ * static_cast<int64_t>(sizeof(float));
    computed_ = io.has_input(kGain) && (single_ || gain_offset_ != 0);
    io.scratch_forward(computed_ ? row : 0);
    io.scratch_backward(folded_ + (computed_ ? row : 0) + (single_ ? row * sums.blocks() : 0));
    kernels_ = &choose(rms_norm_rows());
  }

  void forward(const Run& run) override {
    const Tensor &x = run.in(kX), &y = run.out(0);
    const float* gain = gain_row(run, run.scratch_as<float>());
    const int64_t pieces = x.rows * heads_;
    parallel_for((pieces + kRowBlock - 1) / kRowBlock, [&](int64_t task, int) {
      const int64_t begin = task * kRowBlock, end = std::min(begin + kRowBlock, pieces);
      const WideRows from(pieces_of(x), begin, end);
      const NarrowRows to(pieces_of(y), begin, end);
      kernels_->fwd(begin, end, heads_, width_, from.base(), row_stride(x), gain, eps_, to.base(), row_stride(y),
                    run.saved_as<float>(0));
    });
  }

  void backward(const Run& run) override {
    const Tensor &x = run.in(kX), &dy = run.dout(0);
    const Tensor dx = run.wants(kX) ? run.din(kX) : Tensor{};
    const bool wants_gain = run.wants(kGain);
    const RowSums sums(run.shards(), x.rows * heads_, single_ ? 1 : width_);
    float* partials = run.scratch_as<float>();
    float* rows = partials + folded_ / static_cast<int64_t>(sizeof(float));  // of a computed gain; see infer
    const float* gain = gain_row(run, rows);
    parallel_for(sums.blocks(), [&](int64_t task, int) {
      int64_t begin = 0, end = 0;
      sums.range(task, &begin, &end);
      float *partial = sums.partial(partials, task), *own = rows + (1 + task) * width_;
      const WideRows at(pieces_of(x), begin, end), from(pieces_of(dy), begin, end);
      const NarrowRows to(pieces_of(dx), begin, end);
      kernels_->bwd(begin, end, heads_, width_, at.base(), row_stride(x), gain, run.saved_as<float>(0),
                    from.base(), row_stride(dy), to.base(), row_stride(dx), run.wants(kX) && run.accumulate(kX),
                    !wants_gain ? nullptr
                    : single_   ? own
                                : partial);
      if (wants_gain && single_) *partial = std::accumulate(own, own + width_, 0.0f);
    });
    if (wants_gain) sums.finish(partials, run.sink(kGain));
  }

 private:
  // Return bf16 rows with each head's piece as a separate row, for conversion in blocks of pieces; fp32
  // unchanged.
  Tensor pieces_of(const Tensor& t) const {
    if (!t || t.dtype != DType::bf16) return t;
    return {t.data, t.rows * heads_, width_, width_, t.dtype};
  }
  int64_t row_stride(const Tensor& t) const { return t.dtype == DType::bf16 ? width_ * heads_ : t.stride; }

  // Return the gain of a row with its offset: null for ones. A single value and an offset need `place`.
  const float* gain_row(const Run& run, float* place) const {
    if (!run.has_in(kGain)) return nullptr;
    const float* gain = run.in(kGain).f32();
    if (!computed_) return gain;
    for (int64_t d = 0; d < width_; ++d) place[d] = gain_offset_ + gain[single_ ? 0 : d];
    return place;
  }

  float eps_, gain_offset_;
  int64_t heads_, width_ = 0;  // width_: of a head's piece of a row
  bool single_ = false;        // one gain for all channels
  bool computed_ = false;      // the gain of a row is written to scratch
  int64_t folded_ = 0;         // bytes of the partial sums of the gain's gradient
  const RmsNormKernels* kernels_ = nullptr;
};

}  // namespace

const OpSpec& rms_norm_op() {
  static const OpSpec spec{
      .name = "rms_norm",
      .help = R"(y = x / sqrt(mean(x^2) + eps) (gain_offset + gain) over the last axis (Zhang and Sennrich 2019).

x [..., D], gain [D / heads] (qk-norm: heads > 1). A gain of one element applies to all channels.)",
      .inputs = {{"x"}, {"gain", OpInput::kOptional}},
      .outputs = {{"y"}},
      .options = {option::number("eps", 1e-6, at_least(0), "added to the mean square"),
                  option::integer("heads", 1, at_least(1), "equal pieces of the last axis, each normalized alone"),
                  option::number("gain_offset", 0, {}, "added to the gain; 1: gain is the distance from 1")},
      .make = make<RmsNorm>,
      .kernels = [] { return std::vector{chosen(rms_norm_rows())}; },
  };
  return spec;
}

}  // namespace mudd
