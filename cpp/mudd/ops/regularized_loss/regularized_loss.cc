#include "mudd/ops/regularized_loss/regularized_loss.h"

#include "mudd/base/arena.h"
#include "mudd/base/math.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/ops/cross_entropy/node.h"

namespace mudd {

std::span<const KernelRow<RegularizedLossKernels>> regularized_loss_rows() {
  static const KernelRow<RegularizedLossKernels> rows[] = {MUDD_KERNEL_ROWS(regularized_loss_f32)};
  return rows;
}

namespace {

class RegularizedLoss : public CrossEntropy {
 public:
  explicit RegularizedLoss(const Attributes& a)
      : CrossEntropy(a, a.flag("by_sample")), smoothing_(a.number("label_smoothing")), z_(a.number("z")) {}

  const char* op() const override { return "regularized_loss"; }

  void infer(Inference& io) override {
    CrossEntropy::infer(io);
    io.output({{io.shards().count()}, DType::f64});
    row_kernels_ = &mudd::choose(regularized_loss_rows());
  }

 private:
  // The sums of logit - max of the rows.
  double* below(const Work& w) const { return Pieces(w.s.further).take<double>(w.rows); }
  int64_t further_bytes(int64_t rows, int64_t) const override {
    Pieces pieces(nullptr);
    pieces.take<double>(rows);
    return pieces.used();
  }

  static double log_sum(const RowSoftmax& row) { return math::log(row.sum) + static_cast<double>(row.max); }

  void row_softmax(const Run&, const Work& w, int64_t r, float* row, const float* weight) const override {
    const int32_t target = w.s.targets[r];
    RowSoftmax* stats = w.s.stats + r;
    double* sum = smoothing_ > 0 ? below(w) + r : nullptr;
    if (!weight) return row_kernels_->fwd(w.vocabulary, row, target, stats, sum);
    row_kernels_->exponentials(w.vocabulary, row, target, stats, sum);
    row_gradient(w, row, target, static_cast<double>(*weight), *stats);
  }

  // Replace the exponentials of the row by dlogits.
  void row_gradient(const Work& w, float* row, int32_t target, double weight, const RowSoftmax& stats) const {
    const double of_z = z_ > 0 ? 1 + 2 * z_ * log_sum(stats) : 1;
    const double uniform = weight * smoothing_ / static_cast<double>(w.vocabulary);
    row_kernels_->bwd(w.vocabulary, row, target, static_cast<float>(weight * of_z / stats.sum),
                      static_cast<float>(uniform), static_cast<float>(weight * (1 - smoothing_)));
  }

  double row_loss(const Work& w, int64_t r) const override {
    const RowSoftmax& row = w.s.stats[r];
    double loss = CrossEntropy::row_loss(w, r);
    if (smoothing_ > 0) {
      const double truth = static_cast<double>(row.max) - static_cast<double>(row.target);
      loss = math::log(row.sum) + (1 - smoothing_) * truth -
             smoothing_ * (below(w)[r] / static_cast<double>(w.vocabulary));
    }
    if (z_ > 0) {
      const double lse = log_sum(row);
      loss += z_ * (lse * lse);
    }
    return loss;
  }

  void finish(const Run& run, const Work& w) const override {
    for (int s = 0; s < run.shards().count(); ++s) {
      double plain = 0;
      for (int64_t r = w.s.shard_begin[s]; r < w.s.shard_begin[s + 1]; ++r) plain += CrossEntropy::row_loss(w, r);
      static_cast<double*>(run.out(3).data)[s] = plain;
    }
  }

  const RegularizedLossKernels* row_kernels_ = nullptr;
  double smoothing_, z_;
};

}  // namespace

const OpSpec& regularized_loss_op() {
  static const OpSpec spec{
      .name = "regularized_loss",
      .help =
          R"(Cross entropy with label smoothing and a z-loss: (loss float64 [S], counted, guessed, plain float64 [S]).

h, head, targets, bias, and the first three results: as in cross_entropy. The probability of a target is
1 - label_smoothing + label_smoothing / V, the one of any other token label_smoothing / V. z times the square of the
logarithm of the softmax's denominator is added to each loss. plain is the sum of the cross entropy without both.)",
      .backward_help = R"(Of the summed loss, scaled per shard by dloss (None: 1).)",
      .inputs = {{"h"}, {"head"}, {"targets", OpInput::kIndex}, {"bias", OpInput::kOptional}},
      .outputs = {{"loss", OpOutput::kLoss, DType::f64},
                  {"counted", OpOutput::kNoGradient, DType::f64},
                  {"guessed", OpOutput::kNoGradient},
                  {"plain", OpOutput::kNoGradient, DType::f64}},
      .options = {option::number("label_smoothing", 0, from_to(0, 1),
                                 "probability that is spread over all tokens, as in PyTorch"),
                  option::number("z", 0, at_least(0), "factor of the squared logarithm of the denominator"),
                  option::flag("by_sample", false, "as in cross_entropy, of the cross entropy without both"),
                  option::integer("chunk_bytes", 16ll << 20, at_least(1), "bytes of logits that exist at once")},
      .make = make<RegularizedLoss>,
      .kernels =
          [] {
            return std::vector{chosen(regularized_loss_rows()), chosen(cross_entropy_rows()),
                               chosen(gemm_rows(DType::f32)), chosen(gemm_rows(DType::bf16))};
          },
  };
  return spec;
}

}  // namespace mudd
