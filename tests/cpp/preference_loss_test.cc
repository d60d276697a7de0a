// levels, units: preference_loss against the double reference; equal bits for chunks, threads and micro-batches.
#include <cmath>
#include <complex>

#include "compare.h"
#include "complex_step.h"
#include "mudd/base/parallel.h"
#include "mudd/graph/node.h"
#include "mudd/ops/preference_loss/preference_loss.h"

using namespace mudd;
using namespace mudd::test;
using C = std::complex<double>;

namespace {

// Three or more pairs of answers of up to T targets; every fourth target or so is ignored.
struct Case {
  const char* kind = "dpo";
  int64_t samples = 6, positions = 5, d = 12, vocabulary = 41;
  int shards = 1;
  int64_t chunk_bytes = 16 << 20;
  double beta = 0.4, smoothing = 0;
  DType compute = DType::f32;

  int64_t rows() const { return samples * positions; }
  bool nll = false;
  bool dpo() const { return std::string(kind) == "dpo"; }
};

struct Numbers {
  std::vector<float> h, head, reference;
  std::vector<int32_t> targets;
};

// Position and weight columns of a sample: targets before position 2 are no part of the answer.
std::vector<float> nll_of(const Case& c) {
  std::vector<float> found;
  for (int64_t b = 0; b < c.samples; ++b)
    for (float x : {b % 2 ? 0.0f : 2.0f, static_cast<float>(c.positions), 0.125f, 0.03f, 0.001f})
      found.push_back(x);
  return found;
}

Numbers numbers_of(const Case& c) {
  Numbers n{numbers(1, c.rows() * c.d), numbers(2, c.vocabulary * c.d), numbers(3, 2 * c.samples), {}};
  for (int64_t r = 0; r < c.rows(); ++r)
    n.targets.push_back(number(4, r) < -0.5 ? -1 : static_cast<int32_t>(r * 7919 % c.vocabulary));
  return n;
}

struct Result {
  std::vector<double> loss, pairs, log_probs;
  std::vector<float> ranked, dh, dhead, dreference;
};

Result run(const Case& c, Numbers n) {
  const Shards shards = Shards::cut(c.samples, c.shards);
  Attributes a;
  a.values["loss"] = std::string(c.kind);
  a.values["beta"] = c.beta;
  a.values["label_smoothing"] = c.smoothing;
  a.values["chunk_bytes"] = c.chunk_bytes;
  const auto node = make_node("preference_loss", a);
  const TensorSpec specs[] = {{{c.samples, c.positions, c.d}, DType::f32},
                              {{c.vocabulary, c.d}, DType::f32},
                              {{c.samples, c.positions}, DType::i32},
                              {{c.samples, 2}, DType::f32},
                              {{c.samples, 5}, DType::f32}};
  std::vector<float> nll = nll_of(c);
  Inference needs;
  needs.inputs_ = {
      &specs[0], &specs[1], &specs[2], nullptr, c.dpo() ? &specs[3] : nullptr, c.nll ? &specs[4] : nullptr};
  needs.parameter_ = needs.gathered_ = std::vector<bool>(6, false);
  needs.wants_ = {true, true, false, false, c.dpo(), false};
  needs.training_ = true;
  needs.shards_ = &shards;
  needs.compute_ = c.compute;
  node->infer(needs);
  const int64_t s = shards.count();
  Result result{std::vector<double>(s),
                std::vector<double>(s),
                std::vector<double>(c.samples),
                std::vector<float>(2 * c.samples),
                std::vector<float>(c.rows() * c.d),
                std::vector<float>(c.vocabulary * c.d),
                std::vector<float>(2 * c.samples)};
  std::vector<std::byte> saved(needs.saved_[0], std::byte{0x7f});
  std::vector<std::byte> scratch(std::max(needs.scratch_forward_, needs.scratch_backward_) + 64, std::byte{0x7f});
  StepInput step;
  Run r;
  r.in_ = {Tensor{n.h.data(), c.rows(), c.d, c.d},
           Tensor{n.head.data(), c.vocabulary, c.d, c.d},
           Tensor{n.targets.data(), c.samples, c.positions, c.positions, DType::i32},
           Tensor{},
           c.dpo() ? Tensor{n.reference.data(), c.samples, 2, 2} : Tensor{},
           c.nll ? Tensor{nll.data(), c.samples, 5, 5} : Tensor{}};
  r.out_ = {Tensor{result.loss.data(), 1, s, s, DType::f64}, Tensor{result.pairs.data(), 1, s, s, DType::f64},
            Tensor{result.ranked.data(), c.samples, 2, 2},
            Tensor{result.log_probs.data(), 1, c.samples, c.samples, DType::f64}};
  r.saved_ = {saved.data()};
  r.scratch_ = scratch.data();
  r.packed_plain_ = r.packed_transposed_ = std::vector<const void*>(6, nullptr);
  r.shards_ = &shards;
  r.step_ = &step;
  node->forward(r);
  std::fill(scratch.begin(), scratch.end(), std::byte{0x7f});
  r.dout_.assign(4, Tensor{});
  r.din_.assign(6, Tensor{});
  r.accumulate_.assign(6, 0);
  r.sink_.assign(6, GradSink{});
  r.din_[0] = Tensor{result.dh.data(), c.rows(), c.d, c.d};
  r.sink_[1].out = result.dhead.data();
  if (c.dpo()) r.din_[4] = Tensor{result.dreference.data(), c.samples, 2, 2};
  node->backward(r);
  return result;
}

// Log-probability of the targets of a sample at positions [begin, end), and their count.
template <class N>
N log_prob(const Case& c, const std::vector<N>& h, const std::vector<N>& head, const std::vector<int32_t>& targets,
           int64_t sample, int64_t begin, int64_t end, double* count) {
  N sum = 0;
  *count = 0;
  for (int64_t r = sample * c.positions + begin; r < sample * c.positions + end; ++r) {
    if (targets[r] < 0) continue;
    N total = 0, picked = 0;
    for (int64_t v = 0; v < c.vocabulary; ++v) {
      N logit = 0;
      for (int64_t i = 0; i < c.d; ++i) logit += h[r * c.d + i] * head[v * c.d + i];
      total += std::exp(logit);
      if (v == targets[r]) picked = logit;
    }
    sum += picked - std::log(total);
    *count += 1;
  }
  return sum;
}

// The formulas of the two papers; the chosen and the rejected answer have the log-probabilities l[0] and l[1].
template <class N>
N formula(const Case& c, const N (&l)[2], const double (&count)[2], const N (&reference)[2], N others) {
  const auto log_sigmoid = [](N x) { return -std::log(N(1) + std::exp(-x)); };
  if (c.dpo()) {
    const N m = c.beta * ((l[0] - reference[0]) - (l[1] - reference[1]));
    return -(1 - c.smoothing) * log_sigmoid(m) - c.smoothing * log_sigmoid(-m);
  }
  N odds[2];
  for (int i = 0; i < 2; ++i) {
    const N p = std::exp(l[i] / count[i]);
    odds[i] = std::log(p / (N(1) - p));
  }
  const N nll = c.nll ? -(0.125 + double{0.03f} + double{0.001f}) * (l[0] + others) : -l[0] / count[0];
  return nll - c.beta * log_sigmoid(odds[0] - odds[1]);
}

// The sum over pairs of the inputs h, head, reference.
template <class N>
N reference_loss(const Case& c, const std::vector<std::vector<N>>& in, const std::vector<int32_t>& targets) {
  N loss = 0;
  for (int64_t b = 0; b < c.samples; b += 2) {
    double count[2], unused;
    N l[2], given[2];
    const N others = c.nll ? log_prob(c, in[0], in[1], targets, b, 0, 2, &unused) : N(0);
    for (int i = 0; i < 2; ++i) {
      l[i] = log_prob(c, in[0], in[1], targets, b + i, c.nll && i == 0 ? 2 : 0, c.positions, count + i);
      given[i] = in[2][2 * (b + i)] + in[2][2 * (b + i) + 1];
    }
    if (count[0] > 0 && count[1] > 0) loss += formula(c, l, count, given, others);
  }
  return loss;
}

const Case kCases[] = {{},
                       {.smoothing = 0.2},
                       {.kind = "orpo"},
                       {.kind = "orpo", .samples = 2, .positions = 1},
                       {.kind = "orpo", .nll = true}};

bool same_bits_of(const Result& a, const Result& b) {
  return same_bits(a.ranked, b.ranked) && same_bits(a.dh, b.dh) && same_bits(a.log_probs, b.log_probs);
}

}  // namespace

TEST_CASE("loss and gradients of pairs equal the formulas by the complex step") {
  for (const Case& c : kCases) {
    const Numbers n = numbers_of(c);
    const Result got = run(c, n);
    const std::vector<std::vector<float>> inputs{n.h, n.head, n.reference};
    const std::vector<std::vector<double>> exact{widen(n.h), widen(n.head), widen(n.reference)};
    CHECK(std::fabs(got.loss[0] - reference_loss<double>(c, exact, n.targets)) <=
          tolerance("preference_loss.node") * c.samples);
    const std::vector<float>* gradients[] = {&got.dh, &got.dhead, &got.dreference};
    for (size_t of = 0; of < (c.dpo() ? 3 : 2); ++of) {
      const auto want = complex_step(inputs, of, {1.0f}, [&](const std::vector<std::vector<C>>& in) {
        return std::vector<C>{reference_loss<C>(c, in, n.targets)};
      });
      CHECK(distance(gradients[of]->data(), want, want.size()) <= tolerance("preference_loss.node"));
    }
  }
}

TEST_CASE("one set of bits: chunks and threads, in fp32 and bf16") {
  for (Case c : {Case{.samples = 16, .positions = 30, .vocabulary = 150, .shards = 4},
                 Case{.kind = "orpo", .samples = 8, .positions = 40, .shards = 2},
                 Case{.samples = 4, .positions = 60, .shards = 2, .compute = DType::bf16}}) {
    const Numbers n = numbers_of(c);
    const Result want = run(c, n);
    for (int64_t chunk_bytes : {1ll, 20000ll})
      for (int threads : {1, 3}) {
        c.chunk_bytes = chunk_bytes;
        set_num_threads(threads);
        const Result got = run(c, n);
        CHECK(same_bits_of(got, want));
        CHECK(same_bits(got.dhead, want.dhead));
        CHECK(same_bits(got.loss, want.loss));
      }
    set_num_threads(0);
  }
}

TEST_CASE("micro-batches: each pair has the bits that it has in the whole batch") {
  const Case whole{.samples = 8, .positions = 20, .shards = 4};
  const Numbers n = numbers_of(whole);
  const Result want = run(whole, n);
  Case part = whole;
  part.samples = 2;
  part.shards = 1;
  for (int64_t b = 0; b < whole.samples; b += 2) {
    const auto cut = [&](const auto& v, int64_t width) {
      return std::vector(v.begin() + b * width, v.begin() + (b + 2) * width);
    };
    const int64_t t = whole.positions;
    const Result got = run(part, {cut(n.h, t * whole.d), n.head, cut(n.reference, 2), cut(n.targets, t)});
    CHECK(got.loss[0] == want.loss[b / 2]);
    CHECK(got.pairs[0] == want.pairs[b / 2]);
    CHECK(same_bits(got.dh, cut(want.dh, t * whole.d)));
    CHECK(same_bits(got.ranked, cut(want.ranked, 2)));
  }
}

TEST_CASE("an answer without targets: its pair has no loss, no gradient and is not counted") {
  Case c;
  Numbers n = numbers_of(c);
  std::fill_n(n.targets.begin() + c.positions, c.positions, -1);
  const Result got = run(c, n);
  CHECK(got.pairs[0] == 2);
  for (int64_t i = 0; i < 2 * c.positions * c.d; ++i) CHECK(got.dh[i] == 0.0f);
}

TEST_CASE("extreme pairs are finite: a certain answer, an impossible one, margins of thousands") {
  for (Preference kind : {Preference::dpo, Preference::orpo})
    for (double chosen : {-1e-9, -1.0, -5000.0})
      for (double rejected : {-1e-9, -1.0, -5000.0}) {
        const PairLoss p = pair_loss({kind, 1.0, 0.0}, {chosen, 0, 3}, {rejected, 0, 2});
        for (double x : {p.loss, p.margin, p.by_chosen, p.by_rejected}) CHECK(std::isfinite(x));
        CHECK(p.by_chosen <= 0);
        CHECK(p.by_rejected >= 0);
      }
}
