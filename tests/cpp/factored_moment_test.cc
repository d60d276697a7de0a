// levels: the factored second moment of adamw against its double reference; packs, threads and row lists
// bit-equal.
#include <algorithm>
#include <limits>

#include "compare.h"
#include "mudd/base/arena.h"
#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/optim/adamw/factors.h"
#include "mudd/optim/adamw/reference.h"

using namespace mudd;
using namespace mudd::test;

namespace {

constexpr double kBeta1 = 0.9, kBeta2 = 0.95, kLr = 1e-2, kEps = 1e-8, kDecay = 1e-3, kScale = 0.25;

// A matrix with its own memory; its gradient has two uses.
struct Matrix {
  int64_t rows, cols;
  std::vector<float> w, m, r, c, g0, g1, plain, transposed;
  std::vector<bf16> m16;

  Matrix(int64_t rows, int64_t cols, uint64_t seed, bool packs = false)
      : rows(rows),
        cols(cols),
        w(numbers(seed, rows * cols)),
        m(w.size()),
        r(static_cast<size_t>(rows)),
        c(static_cast<size_t>(cols)),
        plain(packs ? static_cast<size_t>(packed_bytes(rows, cols)) / sizeof(float) : 0),
        transposed(packs ? static_cast<size_t>(packed_bytes(cols, rows)) / sizeof(float) : 0),
        m16(w.size()) {
    draw(seed);
  }
  void draw(uint64_t seed) { g0 = numbers(seed + 100, rows * cols), g1 = numbers(seed + 200, rows * cols); }

  UpdateParameter parameter(DType moment = DType::f32) {
    UpdateParameter p;
    p.rows = rows, p.cols = cols, p.w = w.data();
    p.m = moment == DType::f32 ? static_cast<void*>(m.data()) : m16.data();
    p.row_moment = r.data(), p.column_moment = c.data();
    p.grads[0] = g0.data(), p.grads[1] = g1.data(), p.n_grads = 2;
    p.packed_plain = plain.empty() ? nullptr : plain.data();
    p.packed_transposed = transposed.empty() ? nullptr : transposed.data();
    p.lr = kLr, p.decay = kDecay, p.eps = kEps;
    return p;
  }
};

std::unique_ptr<Optimizer> factored(DType moment = DType::f32, DType second = DType::f32) {
  return make_optimizer(
      "adamw", {{"beta1", kBeta1}, {"beta2", kBeta2}, {"second_moment", std::string("factored")}}, moment, second);
}

bool update(std::vector<UpdateParameter> parameters, int64_t t, DType moment = DType::f32) {
  const auto adamw = factored(moment);
  const Arena scratch(adamw->scratch_bytes(parameters));
  return adamw->update(parameters, t, kScale, scratch.data());
}

constexpr int64_t kShapes[][2] = {{1, 1}, {1, 9}, {9, 1}, {17, 33}, {64, 200}, {130, 48}, {65, 4100}, {200, 1030}};

}  // namespace

TEST_CASE("a factored moment follows the double reference for 20 updates") {
  for (const auto& [rows, cols] : kShapes) {
    Matrix a(rows, cols, 3);
    auto w = widen(a.w), m = widen(a.m), r = widen(a.r), c = widen(a.c);
    for (int64_t t = 1; t <= 20; ++t) {
      a.draw(static_cast<uint64_t>(t));
      std::vector<double> g(a.w.size());
      for (size_t i = 0; i < g.size(); ++i) g[i] = (a.g0[i] + double(a.g1[i])) * kScale;
      CHECK(update({a.parameter()}, t));
      reference::adamw_factored(rows, cols, w.data(), m.data(), r.data(), c.data(), g.data(), kLr, kBeta1, kBeta2,
                                kEps, kDecay, t);
    }
    CHECK(distance(a.w, w, a.w.size()) <= tolerance("factored.w"));
    CHECK(distance(a.m, m, a.m.size()) <= tolerance("adamw.moments"));
    CHECK(distance(a.r, r, a.r.size()) <= tolerance("factored.moments"));
    CHECK(distance(a.c, c, a.c.size()) <= tolerance("factored.moments"));
  }
}

TEST_CASE("threads, packs and other parameters change no bit, and packs are fresh") {
  std::vector<std::vector<float>> first;
  for (const int threads : {1, 2, 3})
    for (const bool packs : {false, true}) {
      set_num_threads(threads);
      std::vector<Matrix> matrices;
      for (const auto& [rows, cols] : kShapes) matrices.emplace_back(rows, cols, matrices.size() + 5, packs);
      std::vector<float> v(17), w = numbers(9, 17), m(17), g = numbers(10, 17);
      UpdateParameter bias;  // with a moment for each element
      bias.rows = 1, bias.cols = 17, bias.w = w.data(), bias.m = m.data(), bias.v = v.data(), bias.lr = kLr;
      bias.grads[0] = g.data(), bias.n_grads = 1;
      std::vector<UpdateParameter> parameters;
      for (Matrix& a : matrices) {
        parameters.push_back(a.parameter());
        if (parameters.size() == 3) parameters.push_back(bias);
      }
      for (int64_t t = 1; t <= 3; ++t) CHECK(update(parameters, t));
      std::vector<std::vector<float>> got = {v, w, m};
      for (const Matrix& a : matrices) {
        for (const auto* part : {&a.w, &a.m, &a.r, &a.c}) got.push_back(*part);
        std::vector<float> fresh(a.plain.size()), turned(a.transposed.size());
        if (packs) pack_weight(a.w.data(), a.rows, a.cols, false, fresh.data());
        if (packs) pack_weight(a.w.data(), a.rows, a.cols, true, turned.data());
        CHECK(fresh == a.plain);
        CHECK(turned == a.transposed);
      }
      if (first.empty()) first = got;
      CHECK(got == first);
    }
  set_num_threads(0);
}

TEST_CASE("a gradient with a row list has the bits of the whole one; rows without gradients only decay") {
  constexpr int64_t kRows = 70, kCols = 33;
  Matrix whole(kRows, kCols, 4), listed(kRows, kCols, 4);
  std::vector<float> values(whole.g0.begin(), whole.g0.begin() + 2 * kCols);
  std::vector<int32_t> place(kRows);
  place[3] = 1, place[68] = 2;
  std::fill(whole.g0.begin(), whole.g0.end(), 0.0f);
  std::copy_n(values.begin(), kCols, whole.g0.begin() + 3 * kCols);
  std::copy_n(values.begin() + kCols, kCols, whole.g0.begin() + 68 * kCols);
  const RowTotal total({{.table_rows = kRows,
                         .width = kCols,
                         .capacity = 2,
                         .values = values.data(),
                         .place = place.data(),
                         .count = 2}});
  UpdateParameter a = whole.parameter(), b = listed.parameter();
  a.n_grads = b.n_grads = 1;
  b.grads[0] = nullptr, b.grad_rows[0] = &total;
  for (int64_t t = 1; t <= 3; ++t) CHECK((update({a}, t) && update({b}, t)));
  CHECK(whole.w == listed.w);
  CHECK(whole.r == listed.r);
  CHECK(whole.c == listed.c);
  CHECK(whole.r[0] == 0);
  CHECK(whole.r[3] > 0);
  const Matrix before(kRows, kCols, 4);
  CHECK(whole.w[0] == doctest::Approx(before.w[0] * (1 - kDecay) * (1 - kDecay) * (1 - kDecay)));
}

TEST_CASE("a gradient of zeros leaves a moment of zeros; infinity is reported; bf16 is the first moment's only") {
  Matrix still(17, 33, 6);
  std::fill(still.g0.begin(), still.g0.end(), 0.0f);
  std::fill(still.g1.begin(), still.g1.end(), 0.0f);
  CHECK(update({still.parameter()}, 1));
  CHECK(still.r == std::vector<float>(17));
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (const int where : {0, 1, 2}) {
      Matrix a(17, 33, 6);
      (where == 0 ? a.r : where == 1 ? a.c : a.g1).back() = bad;
      CHECK_FALSE(update({a.parameter()}, 1));
    }
  Matrix wide(17, 33, 8), narrow(17, 33, 8);
  CHECK((update({wide.parameter()}, 1) && update({narrow.parameter(DType::bf16)}, 1, DType::bf16)));
  CHECK(wide.w == narrow.w);
  CHECK(wide.r == narrow.r);
  CHECK(from_bf16(narrow.m16[5]) == from_bf16(to_bf16(wide.m[5])));
  CHECK_THROWS_AS(factored(DType::f32, DType::bf16), Error);
  CHECK(factored()->whole_matrices());
  CHECK_FALSE(make_optimizer("adamw")->whole_matrices());
}
