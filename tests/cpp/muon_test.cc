// levels: muon against the double reference, its state, packs and threads.
#include "mudd/optim/muon/muon.h"

#include <limits>

#include "compare.h"
#include "mudd/base/arena.h"
#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/optim/muon/reference.h"

using namespace mudd;
using namespace mudd::test;

namespace {

constexpr double kLr = 0.02, kDecay = 1e-3, kScale = 0.25, kMomentum = 0.95;
constexpr int kSteps = 5;
// A matrix with its own memory.
struct Matrix {
  int64_t rows, cols;
  std::vector<float> w, m, g0, g1, plain, transposed;
  std::vector<uint16_t> m16;

  Matrix(int64_t rows, int64_t cols, uint64_t seed)
      : rows(rows),
        cols(cols),
        w(numbers(seed, rows * cols)),
        m(w.size()),
        g0(numbers(seed + 1, rows * cols)),
        g1(numbers(seed + 2, rows * cols)),
        plain(static_cast<size_t>(packed_bytes(rows, cols)) / sizeof(float)),
        transposed(static_cast<size_t>(packed_bytes(cols, rows)) / sizeof(float)),
        m16(w.size()) {}

  UpdateParameter parameter(DType moment = DType::f32) {
    UpdateParameter p;
    p.rows = rows, p.cols = cols, p.fan_in = rows, p.fan_out = cols;
    p.w = w.data();
    p.m = moment == DType::f32 ? static_cast<void*>(m.data()) : m16.data();
    p.grads[0] = g0.data(), p.grads[1] = g1.data(), p.n_grads = 2;
    p.packed_plain = plain.data(), p.packed_transposed = transposed.data();
    p.lr = kLr, p.decay = kDecay;
    return p;
  }
};

constexpr int64_t kShapes[][2] = {{1, 1}, {1, 9}, {9, 1}, {16, 16}, {17, 33}, {33, 17}, {64, 200}, {130, 48}};

bool update(Matrix& a, const OptionValues& settings = {}, DType moment = DType::f32) {
  UpdateParameter p = a.parameter(moment);
  const auto muon = make_optimizer("muon", settings, moment);
  const Arena scratch(muon->scratch_bytes({&p, 1}));
  return muon->update({&p, 1}, 1, kScale, scratch.data());
}

}  // namespace

TEST_CASE("muon follows the double reference, wide and tall, and refreshes the packed copies") {
  for (const char* adjust : {"original", "match_rms_adamw"})
    for (const auto& [rows, cols] : kShapes) {
      Matrix a(rows, cols, 7);
      auto w = widen(a.w), m = widen(a.m);
      const double wide = static_cast<double>(cols) / static_cast<double>(rows);
      const double factor = *adjust == 'o' ? std::sqrt(std::max(1.0, wide))
                                           : 0.2 * std::sqrt(static_cast<double>(std::max(rows, cols)));
      for (uint64_t t = 1; t <= 5; ++t) {
        std::vector<double> g(a.w.size());
        for (size_t i = 0; i < g.size(); ++i) g[i] = (a.g0[i] + static_cast<double>(a.g1[i])) * kScale;
        CHECK(update(a, {{"adjust_lr", adjust}}));
        reference::muon(rows, cols, w, m, g, kLr * factor, kMomentum, kDecay, kSteps);
        a.g0 = numbers(100 + t, rows * cols);
      }
      CHECK(distance(a.m, m, a.m.size()) <= tolerance("muon.moment"));
      CHECK(distance(a.w, w, a.w.size()) <= tolerance("muon.w"));
      std::vector<float> fresh(a.plain.size());
      pack_weight(a.w.data(), rows, cols, false, fresh.data());
      CHECK(fresh == a.plain);
      fresh.assign(a.transposed.size(), 0);
      pack_weight(a.w.data(), rows, cols, true, fresh.data());
      CHECK(fresh == a.transposed);
    }
}

TEST_CASE("five steps bring the singular values of a full matrix near 1") {
  Matrix a(48, 100, 3);
  double squares = 0;
  for (float v : a.w) squares += static_cast<double>(v) * v;
  for (float& v : a.w) v /= static_cast<float>(std::sqrt(squares));
  const Arena scratch(orthogonalize_bytes(48, 100));
  orthogonalize(a.w.data(), 48, 100, kSteps, scratch.data());
  squares = 0;  // of the singular values: 48 of them, each in [0.6, 1.3]
  for (float v : a.w) squares += static_cast<double>(v) * v;
  CHECK(squares > 48 * 0.36);
  CHECK(squares < 48 * 1.69);
}

TEST_CASE("muon gives equal bits for any thread count; a bf16 moment is rounded when stored") {
  for (const DType moment : {DType::f32, DType::bf16}) {
    std::vector<float> first;
    for (int threads : {1, 2, 3}) {
      set_num_threads(threads);
      Matrix a(200, 150, 11);
      for (int t = 0; t < 3; ++t) CHECK(update(a, {}, moment));
      if (first.empty()) first = a.w;
      CHECK(first == a.w);
    }
  }
  set_num_threads(0);
}

TEST_CASE("muon reports what is not finite, and refuses bad settings") {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Matrix a(20, 30, 5), b(20, 30, 5);
    a.w[599] = bad, b.m[17] = bad;
    CHECK_FALSE(update(a));
    CHECK_FALSE(update(b));
  }
  CHECK_THROWS_AS(make_optimizer("muon", {{"momentum", 1.0}}), Error);
  CHECK_THROWS_AS(make_optimizer("muon", {{"steps", int64_t{0}}}), Error);
  CHECK_THROWS_AS(make_optimizer("muon", {{"adjust_lr", "other"}}), Error);
}
