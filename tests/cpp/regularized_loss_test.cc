// levels, units: regularized_loss against the double formula, its gradients by the complex step, and its bits.
#include "mudd/ops/regularized_loss/regularized_loss.h"

#include <algorithm>
#include <complex>

#include "compare.h"
#include "cross_entropy_runner.h"
#include "mudd/base/parallel.h"
#include "mudd/ops/regularized_loss/reference.h"

using namespace mudd;
using namespace mudd::test;
using namespace mudd::test::loss;
using C = std::complex<double>;

namespace {

template <class N>
N formula(const Case& c, const Numbers& n, const std::vector<N>& h, const std::vector<N>& head) {
  return reference::regularized_loss<N>(c.rows(), c.d, c.vocabulary, h.data(), head.data(), n.targets.data(),
                                        c.smoothing, c.z);
}

Case with_terms(Case c, double smoothing, double z) {
  c.regularized = true;
  c.smoothing = smoothing;
  c.z = z;
  return c;
}

}  // namespace

TEST_CASE("loss and gradients equal the formula and its complex step") {
  for (const Case& shape : {Case{1, 1, 5, 7}, Case{2, 9, 6, 33, 2}, Case{3, 20, 8, 37, 2, 1}})
    for (const auto& [smoothing, z] : {std::pair{0.1, 0.0}, {0.0, 1e-2}, {0.3, 0.5}, {1.0, 1e-4}})
      for (const float scale : {1.0f, 6.0f}) {
        const Case c = with_terms(shape, smoothing, z);
        const Numbers n = numbers_of(c, scale);
        const Result got = run(c, n);
        const double bound = tolerance("regularized_loss.node") * scale;
        const double want = formula<double>(c, n, widen(n.h), widen(n.head));
        CHECK(std::fabs(total(got.loss) - want) <= bound * std::max(1.0, std::fabs(want)));
        const Case without = with_terms(c, 0, 0);
        const double plain = formula<double>(without, n, widen(n.h), widen(n.head));
        CHECK(std::fabs(total(got.plain) - plain) <= bound * std::max(1.0, std::fabs(plain)));
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
        CHECK(distance(got.dh, dh, dh.size()) <= bound);
        CHECK(distance(got.dhead, dhead, dhead.size()) <= bound);
      }
}

TEST_CASE("without label smoothing and z-loss cross_entropy has the same bits, in fp32 and bf16") {
  for (const DType compute : {DType::f32, DType::bf16})
    for (Case c : {Case{8, 12, 24, 150, 8}, Case{2, 9, 16, 4133, 2}}) {
      c.compute = compute;
      const Numbers n = numbers_of(c, 4.0f);
      const Result want = run(c, n), got = run(with_terms(c, 0, 0), n);
      CHECK(same_bits(got.loss, want.loss));
      CHECK(same_bits(got.plain, want.loss));
      CHECK(same_bits(got.guessed, want.guessed));
      CHECK(same_bits(got.dh, want.dh));
      CHECK(same_bits(got.dhead, want.dhead));
      // The plain loss has these bits with any setting.
      CHECK(same_bits(run(with_terms(c, 0.2, 1e-3), n).plain, want.loss));
    }
}

TEST_CASE("one set of bits: modes, packing, chunks, threads, in fp32 and bf16") {
  for (const DType compute : {DType::f32, DType::bf16})
    for (Case c : {Case{8, 12, 24, 150, 8}, Case{2, 150, 8, 37, 2}, Case{2, 9, 16, 4133, 2}}) {
      c.compute = compute;
      c = with_terms(c, 0.1, 1e-2);
      const Numbers n = numbers_of(c, 2.0f);
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
