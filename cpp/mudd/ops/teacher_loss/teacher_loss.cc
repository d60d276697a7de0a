#include "mudd/ops/teacher_loss/teacher_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "mudd/base/arena.h"
#include "mudd/base/math.h"
#include "mudd/kernels/convert/wide_rows.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/ops/cross_entropy/node.h"

namespace mudd {
namespace {

constexpr int64_t kDefaultBudget = 16ll << 20;

// A row's distance from the teacher.
struct RowDistance {
  double divergence = 0;
  bool agrees = false;
};

// The parts of a row whose kept logits are set aside.
struct SplitRow {
  const int32_t* ids;
  const float* log_probs;
  float* logits;  // of the kept tokens
  int64_t kept;
  RowSoftmax rest;  // of the other columns
  float largest;    // of all logits
  double sum;       // of exp(logit - largest) over all logits

  double log_z() const { return math::log(sum) + static_cast<double>(largest); }
  // Return the place of a token among the kept ones; `kept` if it is none of them.
  int64_t place_of(int32_t token) const {
    const int32_t* at = std::lower_bound(ids, ids + kept, token);
    return at < ids + kept && *at == token ? at - ids : kept;
  }
  // Return whether the token is the first one with the largest logit. row: the logits without the kept ones.
  bool is_first_largest(int32_t token, float logit, const float* row) const {
    if (!(logit == largest) || !(sum == sum)) return false;
    for (int64_t k = 0; k < kept && ids[k] < token; ++k)
      if (logits[k] == largest) return false;
    return rest.max < largest || std::find(row, row + token, largest) == row + token;
  }
};

class TeacherLoss : public CrossEntropy {
 public:
  explicit TeacherLoss(const Attributes& a) : CrossEntropy(a), weight_(a.number("weight")) {}

  const char* op() const override { return "teacher_loss"; }

  void infer(Inference& io) override {
    check(io.has_input(kTargets) && io.has_input(kIds) && io.has_input(kLogProbs), op(),
          "inputs: expected h, head, targets, ids and log_probs");
    const TensorSpec &targets = io.input(kTargets), &ids = io.input(kIds), &log_probs = io.input(kLogProbs);
    kept_ = ids.shape.empty() ? 0 : ids.cols();
    TensorSpec wanted{targets.shape, DType::i32};
    wanted.shape.push_back(std::max<int64_t>(1, kept_));
    check(ids.dtype == DType::i32 && ids.shape == wanted.shape, op(), "ids: expected ", wanted.text(), ", got ",
          ids.text());
    check(log_probs.dtype == DType::f32 && log_probs.shape == wanted.shape, op(),
          "log_probs: expected f32 of the ", "shape of ids, got ", log_probs.text());
    CrossEntropy::infer(io);
    check(kept_ < io.input(kHead).rows(), op(), "ids: expected fewer than the ", io.input(kHead).rows(),
          " tokens of head, got ", kept_);
    io.output({{targets.shape[0], 2}, DType::f32});
  }

 private:
  enum FurtherInput { kIds = kTargets + 1, kLogProbs, kBias };

  int bias_input() const override { return kBias; }

  struct Further {
    RowDistance* rows;
    float* logits;  // of the kept tokens, of the rows that have logits
    int64_t bytes;
  };
  Further further(std::byte* base, int64_t rows, int64_t at_once) const {
    Pieces pieces(base);
    Further f{pieces.take<RowDistance>(rows), pieces.take<float>(at_once * kept_), 0};
    f.bytes = pieces.used();
    return f;
  }
  int64_t further_bytes(int64_t rows, int64_t at_once) const override {
    return further(nullptr, rows, at_once).bytes;
  }
  Further further(const Work& w) const { return further(w.s.further, w.rows, w.s.logit_rows); }

  const int32_t* ids(const Run& run, int64_t row) const { return run.in(kIds).i32() + row * run.in(kIds).stride; }

  void start(const Run& run, const Work& w, bool backward) const override {
    for (int64_t r = 0; r < w.counted; ++r) {
      const int32_t* row = ids(run, w.s.rows[r]);
      for (int64_t k = 0; k < kept_; ++k)
        if (row[k] <= (k ? row[k - 1] : -1) || row[k] >= w.vocabulary) fail_ids(run, w, w.s.rows[r], row[k]);
    }
    if (!backward || !run.wants(kLogProbs) || run.accumulate(kLogProbs)) return;
    for (int64_t r = 0; r < w.rows; ++r) {
      const NarrowRows to(run.din(kLogProbs), r, r + 1);
      std::fill_n(to.row(r), kept_, 0.0f);
    }
  }

  [[noreturn]] void fail_ids(const Run& run, const Work& w, int64_t row, int32_t id) const {
    const int64_t length = run.in(kTargets).cols;
    fail(op(), "ids: expected ascending values from 0 to ", w.vocabulary - 1, ", got ", id, " at [", row / length,
         ", ", row % length, "]");
  }

  // Set the kept logits aside, and compute the softmax over the others and over all.
  SplitRow split(const Run& run, const Work& w, int64_t r, float* row) const {
    const int64_t at = w.s.rows[r], slot = (row - w.s.logits) / w.vocabulary;
    const Tensor& log_probs = run.in(kLogProbs);
    SplitRow s{ids(run, at),
               log_probs.f32() + at * log_probs.stride,
               further(w).logits + slot * kept_,
               kept_,
               {},
               -std::numeric_limits<float>::infinity(),
               0};
    for (int64_t k = 0; k < kept_; ++k) {
      s.logits[k] = row[s.ids[k]];
      s.largest = std::max(s.largest, s.logits[k]);
      row[s.ids[k]] = -std::numeric_limits<float>::infinity();
    }
    kernels_->fwd(1, w.vocabulary, row, w.vocabulary, w.s.targets + r, &s.rest);
    s.largest = std::max(s.largest, s.rest.max);
    const double largest = static_cast<double>(s.largest);
    s.sum = s.rest.sum * math::exp(static_cast<double>(s.rest.max) - largest);
    for (int64_t k = 0; k < kept_; ++k) s.sum += math::exp(static_cast<double>(s.logits[k]) - largest);
    return s;
  }

  void row_softmax(const Run& run, const Work& w, int64_t r, float* row, const float* weight) const override {
    const SplitRow s = split(run, w, r, row);
    const int32_t target = w.s.targets[r];
    const int64_t place = s.place_of(target);
    const float target_logit = place < kept_ ? s.logits[place] : row[target];
    w.s.stats[r] = {s.sum, s.largest, target_logit, s.is_first_largest(target, target_logit, row)};
    const int64_t likeliest = std::max_element(s.log_probs, s.log_probs + kept_) - s.log_probs;
    const double log_z = s.log_z();
    const double log_rest = math::log(s.rest.sum) + static_cast<double>(s.rest.max) - log_z;
    double kept = 0, divergence = 0;
    for (int64_t k = 0; k < kept_; ++k) {
      const double log_p = static_cast<double>(s.log_probs[k]), p = math::exp(log_p);
      kept += p;
      if (p > 0) divergence += p * (log_p - (static_cast<double>(s.logits[k]) - log_z));
    }
    const double rest = std::max(0.0, 1 - kept);
    const double log_ratio = rest > 0 ? math::log(rest) - log_rest : 0;
    divergence += rest * log_ratio;
    further(w).rows[r] = {divergence, s.is_first_largest(s.ids[likeliest], s.logits[likeliest], row)};
    if (!weight) return;
    if (run.wants(kLogProbs))
      log_prob_gradient(run, w.s.rows[r], s, *weight * weight_, rest > 0 ? log_ratio : -1, log_z);
    row_gradient(w, r, row, s, *weight, kept, rest, math::exp(log_rest));
  }

  // Replace the logits of the row by dlogits.
  void row_gradient(const Work& w, int64_t r, float* row, const SplitRow& s, double weight, double kept,
                    double rest, double student_rest) const {
    const int32_t target = w.s.targets[r];
    const int64_t place = s.place_of(target);
    const double truth = 1 - weight_, share = truth + weight_ * (kept + rest), log_z = s.log_z();
    // The rest keeps its proportions: each of its columns is the softmax over the rest times this.
    const double scale = weight * (share * student_rest - weight_ * rest);
    const int32_t replaced = place < kept_ ? s.ids[0] : target;  // the kernel subtracts here; written below
    const double of_rest =
        place < kept_ ? 0
                      : math::exp(static_cast<double>(row[target]) - static_cast<double>(s.rest.max)) / s.rest.sum;
    RowSoftmax unused;
    kernels_->bwd(1, w.vocabulary, row, w.vocabulary, &replaced, static_cast<float>(scale), &unused);
    for (int64_t k = 0; k < kept_; ++k) {
      const double q = math::exp(static_cast<double>(s.logits[k]) - log_z);
      const double p = math::exp(static_cast<double>(s.log_probs[k]));
      row[s.ids[k]] = static_cast<float>(weight * (share * q - weight_ * p - (k == place ? truth : 0)));
    }
    if (place == kept_) row[target] = static_cast<float>(scale * of_rest - weight * truth);
  }

  // Add the gradient of the teacher's log-probabilities of a row. rest: log P - log Q, or -1 where P is cut at 0.
  void log_prob_gradient(const Run& run, int64_t at, const SplitRow& s, double weight, double rest,
                         double log_z) const {
    const NarrowRows to(run.din(kLogProbs), at, at + 1, true);
    for (int64_t k = 0; k < kept_; ++k) {
      const double log_p = static_cast<double>(s.log_probs[k]), p = math::exp(log_p);
      if (p > 0)
        to.row(at)[k] +=
            static_cast<float>(weight * p * (log_p - (static_cast<double>(s.logits[k]) - log_z) - rest));
    }
  }

  double row_loss(const Work& w, int64_t r) const override {
    return (1 - weight_) * CrossEntropy::row_loss(w, r) + weight_ * further(w).rows[r].divergence;
  }

  void finish(const Run& run, const Work& w) const override {
    const RowDistance* rows = further(w).rows;
    const int64_t length = run.in(kTargets).cols;
    int64_t r = 0;
    for (int64_t sample = 0; sample * length < w.rows; ++sample) {
      double divergence = 0;
      int64_t agreed = 0;
      for (; r < w.counted && w.s.rows[r] < (sample + 1) * length; ++r) {
        divergence += rows[r].divergence;
        agreed += int{rows[r].agrees};
      }
      float* to = run.out(3).f32() + sample * run.out(3).stride;
      to[0] = static_cast<float>(divergence);
      to[1] = static_cast<float>(agreed);
    }
  }

  double weight_;
  int64_t kept_ = 0;
};

}  // namespace

const OpSpec& teacher_loss_op() {
  static const OpSpec spec{
      .name = "teacher_loss",
      .help =
          R"((1 - weight) cross entropy + weight KL(teacher || student): (loss float64 [S], counted, guessed, teacher).

h, head, targets, bias, and the first three results: as in cross_entropy. ids int32 [B, T, K]: the tokens that a teacher
kept at each target, ascending, K < V. log_probs [B, T, K]: the logarithms of their probabilities. The KL is over these
tokens and one bucket for all others. teacher float32 [B, 2] has two sums for each sample: the KL in nats, and the
number of targets at which both models have the same likeliest token.)",
      .backward_help = R"(Of the summed loss, scaled per shard by dloss (None: 1).)",
      .inputs = {{"h"},
                 {"head"},
                 {"targets", OpInput::kIndex},
                 {"ids", OpInput::kIndex},
                 {"log_probs"},
                 {"bias", OpInput::kOptional}},
      .outputs = {{"loss", OpOutput::kLoss, DType::f64},
                  {"counted", OpOutput::kNoGradient, DType::f64},
                  {"guessed", OpOutput::kNoGradient},
                  {"teacher", OpOutput::kNoGradient}},
      .options = {option::number("weight", 0.5, from_to(0, 1), "weight of the KL; the cross entropy has the rest"),
                  option::integer("chunk_bytes", kDefaultBudget, at_least(1),
                                  "bytes of logits that exist at once")},
      .make = make<TeacherLoss>,
      .kernels =
          [] {
            return std::vector{chosen(cross_entropy_rows()), chosen(gemm_rows(DType::f32)),
                               chosen(gemm_rows(DType::bf16))};
          },
  };
  return spec;
}

}  // namespace mudd
