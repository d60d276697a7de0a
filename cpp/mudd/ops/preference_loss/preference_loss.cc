#include "mudd/ops/preference_loss/preference_loss.h"

#include <algorithm>

#include "mudd/base/math.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/ops/cross_entropy/node.h"

namespace mudd {
namespace {

class PreferenceLoss : public CrossEntropy {
 public:
  explicit PreferenceLoss(const Attributes& a)
      : CrossEntropy(a), rule_{a.choice<Preference>("loss"), a.number("beta"), a.number("label_smoothing")} {}

  const char* op() const override { return "preference_loss"; }
  bool computes_in_backward() const override { return false; }  // a row's weight needs the sums of both answers

  void infer(Inference& io) override {
    CrossEntropy::infer(io);
    const int64_t samples = io.input(kTargets).rows();
    for (int s = 0; s <= io.shards().count(); ++s)
      check(io.shards().row_begin(s, samples) % 2 == 0, op(), "targets: expected whole pairs in each of ",
            io.shards().count(), " logical shards, got ", samples, " samples");
    const TensorSpec& reference = io.input(kReference);
    check(io.has_input(kReference) == (rule_.kind == Preference::dpo), op(), "reference: expected ",
          rule_.kind == Preference::dpo ? "f32[B, W] with loss=dpo, got none" : "none with loss=orpo");
    check(!io.has_input(kReference) ||
              (reference.dtype == DType::f32 && reference.shape.size() == 2 && reference.rows() == samples),
          op(), "reference: expected f32[", samples, ", W], got ", reference.text());
    check(!io.has_input(kNll) || rule_.kind == Preference::orpo, op(), "nll: expected none with loss=dpo");
    check(!io.has_input(kNll) || (io.input(kNll).dtype == DType::f32 && io.input(kNll).shape.size() == 2 &&
                                  io.input(kNll).rows() == samples && io.input(kNll).shape[1] == kNllColumns),
          op(), "nll: expected f32[", samples, ", ", kNllColumns, "], got ",
          io.has_input(kNll) ? io.input(kNll).text() : "none");
    io.output({{samples}, DType::f64});
    io.saved(2 * samples * static_cast<int64_t>(sizeof(double)));
  }

  void forward(const Run& run) override {
    const Work w = work(run, false);
    row_losses(run, w);
    sum_pairs(run, w);
  }

  void backward(const Run& run) override {
    row_gradients(run, work(run, true));
    if (run.wants(kReference)) reference_gradient(run);
    if (run.wants(kNll)) no_gradient(run);
  }

 private:
  static constexpr int kReference = kTargets + 2, kNll = kReference + 1;
  static constexpr int64_t kNllColumns = 5;

  // Return true for a position of a sample whose target belongs to the answer.
  static bool in_answer(const Run& run, int64_t sample, int64_t position) {
    if (!run.has_in(kNll)) return true;
    const float* row = run.in(kNll).f32() + sample * run.in(kNll).stride;
    return static_cast<float>(position) >= row[0] && static_cast<float>(position) < row[1];
  }

  static double upstream(const Run& run, int s) {
    return run.dout(0) ? static_cast<const double*>(run.dout(0).data)[s] : run.step().loss_scale;
  }

  // The gradient of a row's log-probability is the one of its sample's sum; the kernel weighs its loss.
  double row_weight(const Run& run, const Work& w, int64_t r, int s) const override {
    const int64_t length = run.in(kTargets).cols, sample = w.s.rows[r] / length;
    const bool others = !in_answer(run, sample, w.s.rows[r] % length);
    return -upstream(run, s) * run.saved_as<double>(0)[sample + (others ? run.in(kTargets).rows : 0)];
  }

  // Return the sums of a sample. row: its first row with a target, moved past its last one.
  AnswerSums answer(const Run& run, const Work& w, int64_t sample, int64_t* row) const {
    AnswerSums sums;
    const int64_t length = run.in(kTargets).cols;
    for (; *row < w.counted && w.s.rows[*row] < (sample + 1) * length; ++*row) {
      const RowSoftmax& one = w.s.stats[*row];
      const double nats = math::log(one.sum) + (static_cast<double>(one.max) - static_cast<double>(one.target));
      const bool counts = in_answer(run, sample, w.s.rows[*row] % length);
      (counts ? sums.log_prob : sums.others) -= nats;
      sums.targets += int{counts};
    }
    if (run.has_in(kNll)) {
      const float* nll = run.in(kNll).f32() + sample * run.in(kNll).stride;
      sums.nll = static_cast<double>(nll[2]) + static_cast<double>(nll[3]) + static_cast<double>(nll[4]);
    }
    if (!run.has_in(kReference)) return sums;
    const Tensor& reference = run.in(kReference);
    for (int64_t c = 0; c < reference.cols; ++c)
      sums.reference += static_cast<double>(reference.f32()[sample * reference.stride + c]);
    return sums;
  }

  void sum_pairs(const Run& run, const Work& w) const {
    const Shards& shards = run.shards();
    const int64_t samples = run.in(kTargets).rows;
    auto* weights = run.saved_as<double>(0);
    auto* log_probs = static_cast<double*>(run.out(3).data);
    int64_t row = 0;
    for (int s = 0; s < shards.count(); ++s) {
      double loss = 0, count = 0;
      for (int64_t b = shards.row_begin(s, samples); b < shards.row_begin(s + 1, samples); b += 2) {
        const AnswerSums chosen = answer(run, w, b, &row), rejected = answer(run, w, b + 1, &row);
        const bool counts = chosen.targets > 0 && rejected.targets > 0;
        const PairLoss pair = counts ? pair_loss(rule_, chosen, rejected) : PairLoss{};
        loss += pair.loss;
        count += int{counts};
        weights[b] = pair.by_chosen;
        weights[b + 1] = pair.by_rejected;
        weights[samples + b] = pair.by_others;
        weights[samples + b + 1] = 0;
        log_probs[b] = chosen.log_prob;
        log_probs[b + 1] = rejected.log_prob;
        float* to = run.out(2).f32() + b * run.out(2).stride;
        std::fill_n(to + run.out(2).stride, 2, 0.0f);
        to[0] = pair.margin > 0 ? 1.0f : 0.0f;
        to[1] = static_cast<float>(pair.margin);
      }
      static_cast<double*>(run.out(0).data)[s] = loss;
      static_cast<double*>(run.out(1).data)[s] = count;
    }
  }

  // The loss depends on differences l - L.
  void reference_gradient(const Run& run) const {
    const Tensor& to = run.din(kReference);
    for (int s = 0; s < run.shards().count(); ++s)
      for (int64_t b = run.shards().row_begin(s, to.rows); b < run.shards().row_begin(s + 1, to.rows); ++b)
        for (int64_t c = 0; c < to.cols; ++c) {
          float* at = to.f32() + b * to.stride + c;
          const auto value = static_cast<float>(-upstream(run, s) * run.saved_as<double>(0)[b]);
          *at = run.accumulate(kReference) ? *at + value : value;
        }
  }

  // The positions and weights of nll are constants.
  static void no_gradient(const Run& run) {
    const Tensor& to = run.din(kNll);
    if (run.accumulate(kNll)) return;
    for (int64_t b = 0; b < to.rows; ++b) std::fill_n(to.f32() + b * to.stride, to.cols, 0.0f);
  }

  PreferenceRule rule_;
};

}  // namespace

const OpSpec& preference_loss_op() {
  static const OpSpec spec{
      .name = "preference_loss",
      .help = R"(Loss of pairs of answers: (loss float64 [S], pairs float64 [S], ranked, log_probs float64 [B]).

h [B, T, D], head [V, D], targets int32 [B, T]; a negative target is ignored. bias [V] is added to the logits.
Samples 2p and 2p + 1 are the chosen and the rejected answer of pair p. log_probs: the sum l of the log-probabilities
of a sample's targets; a: their mean. reference [B, W]: a row's sum is the same sum L under a reference model (dpo).
dpo: m = beta ((l_c - L_c) - (l_r - L_r)), loss = -(1 - label_smoothing) log sigmoid(m) - label_smoothing log
sigmoid(-m). orpo: m = beta (a_c - a_r), loss = -a_c - beta log sigmoid(logit(exp(a_c)) - logit(exp(a_r))).
nll [B, 5] (orpo): columns 0 and 1 are the first position of the answer's targets in a row and the one after the last;
l and a have only these. w: the sum of the other columns. -w times the sum of the log-probabilities of all targets of
the chosen row replaces -a_c. loss is the sum over the pairs of each shard. ranked float32 [B, 2]: for a chosen answer
1 if m > 0, and m.)",
      .backward_help = R"(Of the summed loss, scaled per shard by dloss (None: 1).)",
      .inputs = {{"h"},
                 {"head"},
                 {"targets", OpInput::kIndex},
                 {"bias", OpInput::kOptional},
                 {"reference", OpInput::kOptional},
                 {"nll", OpInput::kOptional}},
      .outputs = {{"loss", OpOutput::kLoss, DType::f64},
                  {"pairs", OpOutput::kNoGradient, DType::f64},
                  {"ranked", OpOutput::kNoGradient},
                  {"log_probs", OpOutput::kNoGradient, DType::f64}},
      .options = {option::word("loss", "dpo", {"dpo", "orpo"}, "formula of the loss"),
                  option::number("beta", 0.1, at_least(0), "scale of the margin, or weight of the odds ratio"),
                  option::number("label_smoothing", 0, from_to(0, 0.5), "probability of a swapped pair (dpo)"),
                  option::integer("chunk_bytes", 16ll << 20, at_least(1), "bytes of logits that exist at once")},
      .make = make<PreferenceLoss>,
      .kernels =
          [] {
            return std::vector{chosen(cross_entropy_rows()), chosen(gemm_rows(DType::f32)),
                               chosen(gemm_rows(DType::bf16))};
          },
  };
  return spec;
}

}  // namespace mudd
