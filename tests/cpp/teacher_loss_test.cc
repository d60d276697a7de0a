// levels, units: teacher_loss against the double formula, its gradients by the complex step, and its bits.
#include "mudd/ops/teacher_loss/teacher_loss.h"

#include <algorithm>
#include <complex>
#include <numeric>

#include "compare.h"
#include "cross_entropy_runner.h"
#include "mudd/base/parallel.h"

using namespace mudd;
using namespace mudd::test;
using namespace mudd::test::loss;
using C = std::complex<double>;

namespace {

// Return the likeliest tokens of random logits, ascending, and their log-probabilities.
Numbers with_teacher(const Case& c, float scale = 1.0f, float sharpness = 1.0f) {
  Numbers n = numbers_of(c, scale);
  const auto logits = numbers(11, c.rows() * c.vocabulary);
  for (int64_t r = 0; r < c.rows(); ++r) {
    const float* row = logits.data() + r * c.vocabulary;
    std::vector<int32_t> order(c.vocabulary);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
    std::sort(order.begin(), order.begin() + c.kept);
    double sum = 0;
    for (int64_t v = 0; v < c.vocabulary; ++v) sum += std::exp(double{sharpness * row[v]});
    for (int64_t k = 0; k < c.kept; ++k) {
      n.ids.push_back(order[k]);
      n.log_probs.push_back(static_cast<float>(double{sharpness * row[order[k]]} - std::log(sum)));
    }
  }
  return n;
}

// Sum of the mixed losses of the rows with target >= 0.
template <class N>
N formula(const Case& c, const Numbers& n, const std::vector<N>& h, const std::vector<N>& head) {
  N loss = 0;
  for (int64_t r = 0; r < c.rows(); ++r) {
    if (n.targets[r] < 0) continue;
    std::vector<N> z(c.vocabulary);
    double largest = -1e300;
    for (int64_t v = 0; v < c.vocabulary; ++v) {
      for (int64_t d = 0; d < c.d; ++d) z[v] += h[r * c.d + d] * head[v * c.d + d];
      largest = std::max(largest, std::real(z[v]));
    }
    N sum = 0, others = 0, kl = 0;
    for (int64_t v = 0; v < c.vocabulary; ++v) {
      const N e = std::exp(z[v] - N(largest));
      sum += e;
      const int32_t* row = n.ids.data() + r * c.kept;
      if (!std::binary_search(row, row + c.kept, static_cast<int32_t>(v))) others += e;
    }
    double rest = 1;
    for (int64_t k = 0; k < c.kept; ++k) {
      const double log_p = n.log_probs[r * c.kept + k];
      rest -= std::exp(log_p);
      kl += N(std::exp(log_p)) * (N(log_p) - (z[n.ids[r * c.kept + k]] - N(largest) - std::log(sum)));
    }
    if (rest > 0) kl += N(rest) * (N(std::log(rest)) - (std::log(others) - std::log(sum)));
    loss += N(1 - c.weight) * (std::log(sum) + N(largest) - z[n.targets[r]]) + N(c.weight) * kl;
  }
  return loss;
}

}  // namespace

TEST_CASE("loss and gradients equal the formula and its complex step") {
  for (Case c : {Case{1, 1, 5, 7}, Case{2, 9, 6, 33, 2}, Case{3, 20, 8, 37, 2, 1}})
    for (const int64_t kept : {int64_t{1}, int64_t{3}, c.vocabulary - 1})
      for (const auto& [scale, sharpness] : {std::pair{1.0f, 1.0f}, std::pair{4.0f, 12.0f}}) {
        c.kept = kept;
        c.weight = kept == 3 ? 0.7 : 1.0;
        const Numbers n = with_teacher(c, scale, sharpness);
        const Result got = run(c, n);
        const double want = formula<double>(c, n, widen(n.h), widen(n.head));
        CHECK(std::fabs(total(got.loss) - want) <=
              tolerance("teacher_loss.node") * scale * std::max(1.0, std::fabs(want)));
        std::vector<C> h(n.h.begin(), n.h.end()), head(n.head.begin(), n.head.end());
        const auto slopes = [&](std::vector<C>& of) {
          std::vector<double> found;
          for (C& x : of) {
            x += C(0, 1e-30);
            found.push_back(formula<C>(c, n, h, head).imag() / 1e-30);
            x = x.real();
          }
          return found;
        };
        const auto dh = slopes(h), dhead = slopes(head);
        CHECK(distance(got.dh, dh, dh.size()) <= tolerance("teacher_loss.node") * scale);
        CHECK(distance(got.dhead, dhead, dhead.size()) <= tolerance("teacher_loss.node") * scale);
      }
}

TEST_CASE("one set of bits: modes, packing, chunks, threads, in fp32 and bf16") {
  for (const DType compute : {DType::f32, DType::bf16})
    for (Case c : {Case{8, 12, 24, 150, 8}, Case{2, 150, 8, 37, 2}}) {
      c.compute = compute;
      c.kept = 9;
      const Numbers n = with_teacher(c);
      const Result want = run(c, n);
      for (const int64_t chunk_bytes : {1, 30000})
        for (const bool training : {false, true})
          for (const int threads : {1, 3}) {
            c.chunk_bytes = chunk_bytes;
            c.training = training;
            set_num_threads(threads);
            CHECK(same_bits(run(c, n), want));
          }
      set_num_threads(0);
    }
}

TEST_CASE("a teacher that is the student has no divergence, and agrees everywhere") {
  Case c{2, 6, 4, 12};
  c.kept = 5;
  c.weight = 1;
  Numbers n{std::vector<float>(c.rows() * c.d), numbers(2, c.vocabulary * c.d), std::vector<int32_t>(c.rows(), 3)};
  n.targets[7] = -1;
  for (int64_t r = 0; r < c.rows(); ++r)
    for (const int32_t id : {0, 2, 3, 7, 11}) {
      n.ids.push_back(id);  // all logits are zero: the first token is the likeliest one of both
      n.log_probs.push_back(static_cast<float>(-std::log(12.0)));
    }
  const Result got = run(c, n);
  CHECK(std::fabs(total(got.loss)) <= 1e-6);
  CHECK(got.teacher[1] == 6);
  CHECK(got.teacher[3] == 5);
  for (const float x : got.dhead) CHECK(x == 0);
  for (const float x : got.dh) CHECK(std::fabs(x) <= 1e-6f);
}

TEST_CASE("ids that are not ascending or not in the vocabulary are refused, but not at ignored targets") {
  Case c{1, 3, 4, 9};
  c.kept = 2;
  for (const std::pair<int32_t, int32_t>& wrong :
       {std::pair{4, 4}, std::pair{5, 2}, std::pair{-1, 2}, std::pair{1, 9}}) {
    Numbers n = with_teacher(c);
    n.targets = {1, 2, -1};
    n.ids[4] = wrong.first, n.ids[5] = wrong.second;
    run(c, n);
    n.targets[2] = 0;
    CHECK_THROWS_WITH_AS(run(c, n), doctest::Contains("[teacher_loss] ids: expected ascending values"), Error);
  }
}
