// levels: cross_entropy rows and node against the double reference, and what else it promises of numbers.
#include <algorithm>
#include <complex>
#include <string>

#include "compare.h"
#include "cross_entropy_runner.h"
#include "mudd/ops/cross_entropy/cross_entropy.h"
#include "mudd/ops/cross_entropy/reference.h"

using namespace mudd;
using namespace mudd::test;
using namespace mudd::test::loss;
using C = std::complex<double>;

namespace {

// Loss and gradients in double: softmax - onehot written out.
struct Wanted {
  double loss = 0, count = 0;
  std::vector<double> dh, dhead;
};

Wanted wanted(const Case& c, const Numbers& n) {
  const auto h = widen(n.h), head = widen(n.head);
  Wanted w{reference::cross_entropy<double>(c.rows(), c.d, c.vocabulary, h.data(), head.data(), n.targets.data()),
           0, std::vector<double>(h.size()), std::vector<double>(head.size())};
  for (int64_t r = 0; r < c.rows(); ++r) {
    if (n.targets[r] < 0) continue;
    w.count += 1;
    std::vector<double> p(c.vocabulary);
    double largest = -1e300, sum = 0;
    for (int64_t v = 0; v < c.vocabulary; ++v) {
      for (int64_t i = 0; i < c.d; ++i) p[v] += h[r * c.d + i] * head[v * c.d + i];
      largest = std::max(largest, p[v]);
    }
    for (double& x : p) sum += x = std::exp(x - largest);
    for (int64_t v = 0; v < c.vocabulary; ++v) {
      const double g = p[v] / sum - (v == n.targets[r] ? 1 : 0);
      for (int64_t i = 0; i < c.d; ++i) {
        w.dh[r * c.d + i] += g * head[v * c.d + i];
        w.dhead[v * c.d + i] += g * h[r * c.d + i];
      }
    }
  }
  return w;
}

}  // namespace

TEST_CASE("cross_entropy rows equal the reference on every edge of the lanes and blocks") {
  for_each_row(cross_entropy_rows(), [](const auto& row) {
    for (int64_t vocabulary : {1, 7, 8, 9, 16, 17, 31, 32, 33, 63, 64, 65, 129, 2047, 2048, 2049, 4500}) {
      const int64_t rows = 3, stride = vocabulary + 5;
      auto logits = numbers(4, rows * stride);
      for (float& x : logits) x *= 8;
      const std::vector<int32_t> targets{0, static_cast<int32_t>(vocabulary / 2),
                                         static_cast<int32_t>(vocabulary - 1)};
      const auto before = logits;
      std::vector<RowSoftmax> stats(rows), again(rows);
      row.kernels->fwd(rows, vocabulary, logits.data(), stride, targets.data(), stats.data());
      CHECK(same_bits(logits, before));
      row.kernels->bwd(rows, vocabulary, logits.data(), stride, targets.data(), 0.5f, again.data());
      for (int64_t r = 0; r < rows; ++r) {
        CHECK(stats[r].sum == again[r].sum);
        CHECK(stats[r].max == again[r].max);
        CHECK(stats[r].target == again[r].target);
        double largest = -1e300, sum = 0;
        for (int64_t v = 0; v < vocabulary; ++v) largest = std::max<double>(largest, before[r * stride + v]);
        for (int64_t v = 0; v < vocabulary; ++v) sum += std::exp(before[r * stride + v] - largest);
        CHECK(stats[r].max == largest);
        CHECK(std::fabs(stats[r].sum - sum) <= tolerance("cross_entropy.sum") * sum);
        std::vector<double> want(vocabulary);
        for (int64_t v = 0; v < vocabulary; ++v)
          want[v] = 0.5 * (std::exp(before[r * stride + v] - largest) / sum - (v == targets[r]));
        if (vocabulary == 1) CHECK(logits[r * stride] == 0.0f);
        else CHECK(distance(logits.data() + r * stride, want, want.size()) <= tolerance("cross_entropy.dlogits"));
      }
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t v = vocabulary; v < stride; ++v) CHECK(logits[r * stride + v] == before[r * stride + v]);
    }
  });
}

TEST_CASE("a guessed target has the first of the largest logits of its row") {
  for_each_row(cross_entropy_rows(), [](const auto& row) {
    const auto check_row = [&](const std::vector<float>& logits, int32_t target) {
      const int64_t n = std::ssize(logits);
      RowSoftmax seen, trained;
      row.kernels->fwd(1, n, logits.data(), n, &target, &seen);
      std::vector<float> spent = logits;
      row.kernels->bwd(1, n, spent.data(), n, &target, 1.0f, &trained);
      const bool want = reference::guessed(n, logits.data(), target);
      CHECK(seen.guessed == want);
      CHECK(trained.guessed == want);
      return want;
    };
    for (int64_t vocabulary : {1, 2, 7, 8, 9, 31, 33, 64, 65, 129, 2049})
      for (uint64_t seed = 0; seed < 8; ++seed) {
        std::vector<float> logits = numbers(20 + seed, vocabulary);
        const auto top = std::max_element(logits.begin(), logits.end());
        const auto largest = static_cast<int32_t>(top - logits.begin());
        const auto last = static_cast<int32_t>(vocabulary - 1);
        CHECK(check_row(logits, largest));
        check_row(logits, static_cast<int32_t>(seed * 2654435761u % static_cast<uint64_t>(vocabulary)));
        logits[last] = *top;  // the same value after the largest: only the first one is the argmax
        CHECK(check_row(logits, largest));
        CHECK(check_row(logits, last) == (largest == last));
        for (const float bad : {NAN, INFINITY}) {
          std::vector<float> broken = logits;
          broken[static_cast<size_t>(vocabulary / 2)] = bad;
          for (int32_t target : {0, static_cast<int32_t>(vocabulary / 2), largest, last})
            CHECK(!check_row(broken, target));
        }
      }
    CHECK(check_row({-0.0f, 0.0f}, 0));
    CHECK(!check_row({-0.0f, 0.0f}, 1));
  });
}

TEST_CASE("guessed targets of each sample, and their share of the counted ones") {
  for (const DType compute : {DType::f32, DType::bf16}) {
    Case c{3, 5, 4, 4, 1};
    c.compute = compute;
    Numbers n{std::vector<float>(c.rows() * c.d), std::vector<float>(c.vocabulary * c.d), {}};
    for (int64_t v = 0; v < c.vocabulary; ++v) n.head[v * c.d + v] = 1;  // logits are h itself
    n.targets = {0, 1, 2, 3, -1, 0, 0, 0, 0, 0, -1, -1, -1, -1, -1};
    for (int64_t r = 0; r < c.rows(); ++r) n.h[r * c.d + 2] = 1;  // 2 has the largest logit
    n.h[1 * c.d + 1] = 1;                                         // or shares it with 1, which is the first then
    n.h[7 * c.d + 0] = 3;
    for (const bool training : {false, true}) {
      c.training = training;
      CHECK(run(c, n).guessed == std::vector<float>{2, 0.5f, 1, 0.2f, 0, 0});
    }
  }
}

TEST_CASE("gradients of the reference by the complex step equal softmax minus one-hot") {
  const Case c{1, 4, 3, 6};
  const Numbers n = numbers_of(c);
  const Wanted want = wanted(c, n);
  std::vector<C> h(n.h.begin(), n.h.end()), head(n.head.begin(), n.head.end());
  const auto slope = [&](C& x) {
    x += C(0, 1e-30);
    const C loss =
        reference::cross_entropy<C>(c.rows(), c.d, c.vocabulary, h.data(), head.data(), n.targets.data());
    x -= C(0, 1e-30);
    return loss.imag() / 1e-30;
  };
  for (size_t i = 0; i < h.size(); ++i) CHECK(slope(h[i]) == doctest::Approx(want.dh[i]).epsilon(1e-12));
  for (size_t i = 0; i < head.size(); ++i) CHECK(slope(head[i]) == doctest::Approx(want.dhead[i]).epsilon(1e-12));
}

TEST_CASE("loss and gradients equal the reference") {
  for (const Case& c : {Case{1, 1, 5, 7}, Case{2, 9, 16, 33, 2}, Case{3, 70, 8, 37, 2, 1},
                        Case{4, 33, 48, 1000, 4, 4096}, Case{8, 5, 20, 130, 8, 40000}})
    for (float scale : {1.0f, 20.0f}) {
      const Numbers n = numbers_of(c, scale);
      const Wanted want = wanted(c, n);
      const Result got = run(c, n);
      CHECK(total(got.count) == want.count);
      CHECK(std::fabs(total(got.loss) - want.loss) <=
            tolerance("cross_entropy.node") * scale * std::max(1.0, want.loss));
      CHECK(distance(got.dh, want.dh, got.dh.size()) <= tolerance("cross_entropy.node") * scale);
      CHECK(distance(got.dhead, want.dhead, got.dhead.size()) <= tolerance("cross_entropy.node") * scale);
    }
}

TEST_CASE("dout scales the gradients of its shard") {
  const Case c{2, 6, 8, 20, 2};
  const Numbers n = numbers_of(c);
  const Result one = run(c, n), scaled = run(c, n, {{4.0, 0.0}, {}, {}, false});
  CHECK(same_bits(one.loss, scaled.loss));
  for (int64_t i = 0; i < c.rows() * c.d; ++i)
    CHECK(scaled.dh[i] == doctest::Approx(i < c.rows() * c.d / 2 ? 4 * one.dh[i] : 0.0).epsilon(1e-6));
}

TEST_CASE("all targets ignored: loss, counts and gradients are zero") {
  const Case c{2, 9, 4, 11, 2};
  Numbers n = numbers_of(c);
  std::fill(n.targets.begin(), n.targets.end(), -1);
  const Result got = run(c, n);
  CHECK(total(got.loss) == 0);
  CHECK(total(got.count) == 0);
  for (float x : got.dh) CHECK(x == 0);
  for (float x : got.dhead) CHECK(x == 0);
}

TEST_CASE("huge logits neither overflow nor lose the loss; a NaN shows") {
  Case c{1, 3, 1, 4};
  Numbers n{{1e3f, 1e30f, -1e30f}, {1.0f, 2.0f, -1.0f, 2.0f}, {1, 1, 2}};
  for (bool training : {false, true}) {
    c.training = training;
    const Result got = run(c, n);
    CHECK(got.loss[0] == doctest::Approx(2 * std::log(2.0)));
    for (float x : got.dh) CHECK(std::isfinite(x));
    Numbers bad = n;
    bad.h[0] = NAN;
    const Result broken = run(c, bad);
    CHECK(std::isnan(broken.loss[0]));
    CHECK(std::isnan(broken.dh[0]));
    CHECK(std::isfinite(broken.dh[1]));
    bad.h[0] = INFINITY;
    CHECK(!std::isfinite(run(c, bad).loss[0]));
  }
}

TEST_CASE("a target outside the vocabulary fails with its value and place") {
  Case c{2, 3, 4, 10};
  Numbers n = numbers_of(c);
  n.targets[4] = 10;
  for (bool training : {false, true}) {
    c.training = training;
    std::string message;
    try {
      run(c, n);
    } catch (const Error& e) {
      message = e.what();
    }
    CHECK(message.find("got 10 at [1, 1]") != std::string::npos);
  }
}
