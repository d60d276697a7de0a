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
      : CrossEntropy(a),
        rule_{a.choice<Preference>("loss"), a.number("beta"), a.number("label_smoothing")},
        pairs_(a.integer("pairs")) {}

  const char* op() const override { return "preference_loss"; }
  bool computes_in_backward() const override { return false; }  // a row's weight needs the sums of both answers

  void infer(Inference& io) override {
    CrossEntropy::infer(io);
    const int64_t samples = io.input(kTargets).rows();
    for (int s = 0; s <= io.shards().count(); ++s)
      check(io.shards().row_begin(s, samples) % 2 == 0, op(), "targets: expected whole pairs in each of ",
            io.shards().count(), " logical shards, got ", samples, " samples");
    check(io.has_input(kSegments) == (pairs_ > 1), op(), "segments: expected ",
          pairs_ > 1 ? "int32[B, T] with several pairs in a sample, got none" : "none with pairs=1");
    check(pairs_ == 1 ||
              (io.input(kSegments).dtype == DType::i32 && io.input(kSegments).shape == io.input(kTargets).shape),
          op(), "segments: expected ", io.input(kTargets).text(), ", got ",
          pairs_ > 1 ? io.input(kSegments).text() : "none");
    const TensorSpec& reference = io.input(kReference);
    check(io.has_input(kReference) == (rule_.kind == Preference::dpo), op(), "reference: expected ",
          rule_.kind == Preference::dpo ? "f32[B, W] with loss=dpo, got none" : "none with loss=orpo");
    check(!io.has_input(kReference) || (reference.dtype == DType::f32 && reference.shape.size() == 2 &&
                                        reference.rows() == samples && reference.cols() % pairs_ == 0),
          op(), "reference: expected f32[", samples, ", ", pairs_, " W], got ", reference.text());
    check(!io.has_input(kNll) || rule_.kind == Preference::orpo, op(), "nll: expected none with loss=dpo");
    check(!io.has_input(kNll) ||
              (io.input(kNll).dtype == DType::f32 && io.input(kNll).shape.size() == 2 &&
               io.input(kNll).rows() == samples && io.input(kNll).shape[1] == pairs_ * kNllColumns),
          op(), "nll: expected f32[", samples, ", ", pairs_ * kNllColumns, "], got ",
          io.has_input(kNll) ? io.input(kNll).text() : "none");
    io.output({{samples * pairs_}, DType::f64});
    io.saved(2 * samples * pairs_ * static_cast<int64_t>(sizeof(double)));
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
  static constexpr int kReference = kTargets + 2, kNll = kReference + 1, kSegments = kNll + 1;
  static constexpr int64_t kNllColumns = 5;

  // The sample of a row, the number of its answer in the sample, and its position.
  struct Spot {
    int64_t sample, answer, position;
  };

  Spot spot(const Run& run, int64_t row) const {
    const int64_t length = run.in(kTargets).cols, sample = row / length, position = row % length;
    if (pairs_ == 1) return {sample, 0, position};
    const Tensor& segments = run.in(kSegments);
    return {sample, segments.i32()[sample * segments.stride + position] - 1, position};
  }

  // Return the numbers of an answer in nll; null without that input.
  static const float* nll_of(const Run& run, int64_t sample, int64_t answer) {
    return run.has_in(kNll) ? run.in(kNll).f32() + sample * run.in(kNll).stride + answer * kNllColumns : nullptr;
  }

  // Return true for a position whose target belongs to the answer.
  static bool in_answer(const float* nll, int64_t position) {
    return !nll || (static_cast<float>(position) >= nll[0] && static_cast<float>(position) < nll[1]);
  }

  static double upstream(const Run& run, int s) {
    return run.dout(0) ? static_cast<const double*>(run.dout(0).data)[s] : run.step().loss_scale;
  }

  // The gradient of a row's log-probability is the one of its answer's sum; the kernel weighs its loss.
  double row_weight(const Run& run, const Work& w, int64_t r, int s) const override {
    const Spot at = spot(run, w.s.rows[r]);
    const bool others = !in_answer(nll_of(run, at.sample, at.answer), at.position);
    const int64_t first = others ? run.in(kTargets).rows * pairs_ : 0;
    return -upstream(run, s) * run.saved_as<double>(0)[first + at.sample * pairs_ + at.answer];
  }

  // Return the sums of an answer of a sample. row: its first row with a target, moved past its last one.
  AnswerSums sums_of(const Run& run, const Work& w, int64_t sample, int64_t answer, int64_t* row) const {
    AnswerSums sums;
    const float* nll = nll_of(run, sample, answer);
    for (; *row < w.counted; ++*row) {
      const Spot at = spot(run, w.s.rows[*row]);
      if (at.sample != sample || at.answer != answer) break;
      const RowSoftmax& one = w.s.stats[*row];
      const double nats = math::log(one.sum) + (static_cast<double>(one.max) - static_cast<double>(one.target));
      const bool counts = in_answer(nll, at.position);
      (counts ? sums.log_prob : sums.others) -= nats;
      sums.targets += int{counts};
    }
    if (nll) sums.nll = static_cast<double>(nll[2]) + static_cast<double>(nll[3]) + static_cast<double>(nll[4]);
    if (!run.has_in(kReference)) return sums;
    const Tensor& reference = run.in(kReference);
    const int64_t columns = reference.cols / pairs_;
    for (int64_t c = 0; c < columns; ++c)
      sums.reference += static_cast<double>(reference.f32()[sample * reference.stride + answer * columns + c]);
    return sums;
  }

  // Compute the sums of all answers of a sample. row: as for sums_of.
  void sum_answers(const Run& run, const Work& w, int64_t sample, int64_t* row, AnswerSums* to) const {
    for (int64_t k = 0; k < pairs_; ++k) to[k] = sums_of(run, w, sample, k, row);
    if (*row < w.counted && spot(run, w.s.rows[*row]).sample == sample)
      fail(op(), "segments: expected ascending numbers from 1 to ", pairs_, " where targets are, got ",
           spot(run, w.s.rows[*row]).answer + 1, " in sample ", sample);
  }

  void sum_pairs(const Run& run, const Work& w) const {
    const Shards& shards = run.shards();
    const int64_t samples = run.in(kTargets).rows;
    auto* log_probs = static_cast<double*>(run.out(3).data);
    int64_t row = 0;
    for (int s = 0; s < shards.count(); ++s) {
      double loss = 0, count = 0;
      for (int64_t b = shards.row_begin(s, samples); b < shards.row_begin(s + 1, samples); b += 2) {
        AnswerSums chosen[kMostPairs], rejected[kMostPairs];
        sum_answers(run, w, b, &row, chosen);
        sum_answers(run, w, b + 1, &row, rejected);
        double ranked = 0, margin = 0;
        for (int64_t k = 0; k < pairs_; ++k) {
          const bool counts = chosen[k].targets > 0 && rejected[k].targets > 0;
          const PairLoss pair = counts ? pair_loss(rule_, chosen[k], rejected[k]) : PairLoss{};
          loss += pair.loss;
          count += int{counts};
          ranked += int{pair.margin > 0};
          margin += pair.margin;
          keep(run, b * pairs_ + k, pair);
          log_probs[b * pairs_ + k] = chosen[k].log_prob;
          log_probs[(b + 1) * pairs_ + k] = rejected[k].log_prob;
        }
        float* to = run.out(2).f32() + b * run.out(2).stride;
        std::fill_n(to + run.out(2).stride, 2, 0.0f);
        to[0] = static_cast<float>(ranked);
        to[1] = static_cast<float>(margin);
      }
      static_cast<double*>(run.out(0).data)[s] = loss;
      static_cast<double*>(run.out(1).data)[s] = count;
    }
  }

  // Save the gradients of a pair by the sums of its answers. chosen: the number of the chosen one.
  void keep(const Run& run, int64_t chosen, const PairLoss& pair) const {
    auto* weights = run.saved_as<double>(0);
    const int64_t answers = run.in(kTargets).rows * pairs_;
    weights[chosen] = pair.by_chosen;
    weights[chosen + pairs_] = pair.by_rejected;
    weights[answers + chosen] = pair.by_others;
    weights[answers + chosen + pairs_] = 0;
  }

  // The loss depends on differences l - L.
  void reference_gradient(const Run& run) const {
    const Tensor& to = run.din(kReference);
    for (int s = 0; s < run.shards().count(); ++s)
      for (int64_t b = run.shards().row_begin(s, to.rows); b < run.shards().row_begin(s + 1, to.rows); ++b)
        for (int64_t c = 0; c < to.cols; ++c) {
          float* at = to.f32() + b * to.stride + c;
          const int64_t answer = b * pairs_ + c / (to.cols / pairs_);
          const auto value = static_cast<float>(-upstream(run, s) * run.saved_as<double>(0)[answer]);
          *at = run.accumulate(kReference) ? *at + value : value;
        }
  }

  // The positions and weights of nll are constants.
  static void no_gradient(const Run& run) {
    const Tensor& to = run.din(kNll);
    if (run.accumulate(kNll)) return;
    for (int64_t b = 0; b < to.rows; ++b) std::fill_n(to.f32() + b * to.stride, to.cols, 0.0f);
  }

  static constexpr int64_t kMostPairs = 64;

  PreferenceRule rule_;
  int64_t pairs_;  // most pairs of a sample
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
1 if m > 0, and m.
pairs > 1: segments int32 [B, T] are the numbers of the answers in a sample, ascending from 1 to pairs. Answers of equal
number in samples 2p and 2p + 1 are a pair. reference [B, pairs W] and nll [B, 5 pairs] have the columns of each answer.
log_probs has B pairs values. ranked has the sums over the pairs of a sample.)",
      .backward_help = R"(Of the summed loss, scaled per shard by dloss (None: 1).)",
      .inputs = {{"h"},
                 {"head"},
                 {"targets", OpInput::kIndex},
                 {"bias", OpInput::kOptional},
                 {"reference", OpInput::kOptional},
                 {"nll", OpInput::kOptional},
                 {"segments", OpInput::kOptional | OpInput::kIndex}},
      .outputs = {{"loss", OpOutput::kLoss, DType::f64},
                  {"pairs", OpOutput::kNoGradient, DType::f64},
                  {"ranked", OpOutput::kNoGradient},
                  {"log_probs", OpOutput::kNoGradient, DType::f64}},
      .options = {option::word("loss", "dpo", {"dpo", "orpo"}, "formula of the loss"),
                  option::number("beta", 0.1, at_least(0), "scale of the margin, or weight of the odds ratio"),
                  option::number("label_smoothing", 0, from_to(0, 0.5), "probability of a swapped pair (dpo)"),
                  option::integer("pairs", 1, from_to(1, 64), "most pairs in a sample"),
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
