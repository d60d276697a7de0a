// levels: row_adagrad against its double reference; row lists, processes, packs and threads bit-equal.
#include <algorithm>
#include <limits>
#include <memory>

#include "compare.h"
#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/optim/optimizer.h"
#include "mudd/optim/row_adagrad/reference.h"
#include "row_lists.h"

using namespace mudd;
using namespace mudd::test;

namespace {

constexpr double kLr = 1e-2, kEps = 1e-8, kDecay = 1e-3, kScale = 0.25;

// A table with its own memory.
struct Table {
  int64_t rows, cols;
  std::vector<float> w, sum, last, plain, transposed;

  Table(int64_t rows, int64_t cols, uint64_t seed, bool packs = false)
      : rows(rows),
        cols(cols),
        w(numbers(seed, rows * cols)),
        sum(static_cast<size_t>(rows)),
        last(static_cast<size_t>(rows)),
        plain(packs ? static_cast<size_t>(packed_bytes(rows, cols)) / sizeof(float) : 0),
        transposed(packs ? static_cast<size_t>(packed_bytes(cols, rows)) / sizeof(float) : 0) {
    if (packs) pack_weight(w.data(), rows, cols, false, plain.data());
    if (packs) pack_weight(w.data(), rows, cols, true, transposed.data());
  }

  UpdateParameter parameter() {
    UpdateParameter p;
    p.rows = rows, p.cols = cols, p.w = w.data();
    p.row_moment = sum.data(), p.row_update = last.data();
    p.packed_plain = plain.empty() ? nullptr : plain.data();
    p.packed_transposed = transposed.empty() ? nullptr : transposed.data();
    p.lr = kLr, p.decay = kDecay, p.eps = kEps;
    return p;
  }
  UpdateParameter with(const std::vector<const std::vector<float>*>& whole) {
    UpdateParameter p = parameter();
    for (const auto* g : whole) p.grads[p.n_grads++] = g->data();
    return p;
  }
  UpdateParameter listed(const std::vector<const RowTotal*>& totals) {
    UpdateParameter p = parameter();
    for (const RowTotal* total : totals) p.grad_rows[p.n_grads++] = total;
    return p;
  }
  bool equals(const Table& other) const {
    return same_bits(w, other.w) && same_bits(sum, other.sum) && same_bits(last, other.last);
  }
  bool has_fresh_packs() const {
    std::vector<float> fresh(plain.size()), turned(transposed.size());
    pack_weight(w.data(), rows, cols, false, fresh.data());
    pack_weight(w.data(), rows, cols, true, turned.data());
    return fresh == plain && turned == transposed;
  }
};

bool update(std::vector<UpdateParameter> parameters, int64_t n) {
  const auto optimizer = make_optimizer("row_adagrad");
  CHECK(optimizer->scratch_bytes(parameters) == 0);
  return optimizer->update(parameters, n, kScale, nullptr);
}

// Return about a third of the rows, in no order.
std::vector<int32_t> some_rows(int64_t rows, uint64_t seed) {
  std::vector<int32_t> ids;
  for (int64_t r = rows - 1; r >= 0; --r)
    if (number(seed, static_cast<uint64_t>(r)) < -0.3f) ids.push_back(static_cast<int32_t>(r));
  std::rotate(ids.begin(), ids.begin() + static_cast<int64_t>(ids.size()) / 3, ids.end());
  return ids;
}

std::vector<float> added(std::vector<float> a, const std::vector<float>& b) {
  for (size_t k = 0; k < a.size(); ++k) a[k] += b[k];
  return a;
}

constexpr int64_t kShapes[][2] = {{1, 1}, {300, 1}, {70, 9}, {200, 33}, {9, 4100}};

}  // namespace

TEST_CASE("row_adagrad follows the double reference for 20 updates") {
  for (const auto& [rows, cols] : kShapes) {
    Table a(rows, cols, 3);
    auto w = widen(a.w), sum = widen(a.sum), last = widen(a.last);
    for (int64_t n = 1; n <= 20; ++n) {
      const auto seed = static_cast<uint64_t>(n);
      const auto g0 = only_rows(numbers(seed + 100, rows * cols), cols, some_rows(rows, seed));
      const auto g1 = only_rows(numbers(seed + 200, rows * cols), cols, some_rows(rows, seed + 50));
      std::vector<double> g(g0.size());
      for (size_t k = 0; k < g.size(); ++k) g[k] = (g0[k] + double(g1[k])) * kScale;
      CHECK(update({a.with({&g0, &g1})}, n));
      reference::row_adagrad(rows, cols, w, sum, last, g, n, kLr, kDecay, kEps);
    }
    CHECK(distance(a.w, w, a.w.size()) <= tolerance("row_adagrad.w"));
    CHECK(distance(a.sum, sum, a.sum.size()) <= tolerance("row_adagrad.w"));
    CHECK(widen(a.last) == last);
  }
}

TEST_CASE("a row list has the bits of the whole gradient, with any threads, and packs are fresh") {
  for (const auto& [rows, cols] : kShapes) {
    Table whole(rows, cols, 5), packed(rows, cols, 5, true);
    std::vector<std::unique_ptr<Table>> listed;
    for (int threads = 1; threads <= 3; ++threads) listed.push_back(std::make_unique<Table>(rows, cols, 5));
    for (int64_t n = 1; n <= 4; ++n) {
      const auto ids = n == 3 ? std::vector<int32_t>{} : some_rows(rows, static_cast<uint64_t>(n));
      const auto g = only_rows(numbers(static_cast<uint64_t>(n), rows * cols), cols, ids);
      const RowList list(g, rows, cols, ids);
      const RowTotal total({list});
      set_num_threads(1);
      CHECK(update({whole.with({&g})}, n));
      for (int threads = 1; threads <= 3; ++threads) {
        set_num_threads(threads);
        CHECK(update({listed[threads - 1]->listed({&total})}, n));
        CHECK(listed[threads - 1]->equals(whole));
      }
      CHECK(update({packed.listed({&total})}, n));
      CHECK(packed.equals(whole));
      CHECK(packed.has_fresh_packs());
    }
  }
  set_num_threads(0);
}

TEST_CASE("two uses and the lists of two processes have the bits of the summed gradients") {
  constexpr int64_t kRows = 150, kCols = 33;
  const std::vector<int32_t> of_a = some_rows(kRows, 1), of_b = some_rows(kRows, 2), of_c = some_rows(kRows, 3);
  CHECK(std::find_first_of(of_a.begin(), of_a.end(), of_b.begin(), of_b.end()) != of_a.end());
  const auto a = only_rows(numbers(11, kRows * kCols), kCols, of_a);
  const auto b = only_rows(numbers(12, kRows * kCols), kCols, of_b);
  const auto c = only_rows(numbers(13, kRows * kCols), kCols, of_c), ab = added(a, b);
  const RowList list_a(a, kRows, kCols, of_a), list_b(b, kRows, kCols, of_b), list_c(c, kRows, kCols, of_c);
  std::vector<int32_t> every_row(kRows);
  for (int32_t r = 0; r < kRows; ++r) every_row[r] = r + 1;
  RowGradient whole_b{.table_rows = kRows, .width = kCols, .values = const_cast<float*>(b.data())};
  whole_b.place = every_row.data();
  std::vector<RowGradient> many(66, RowGradient(list_c));
  many.front() = list_a, many.back() = list_b;
  std::vector<int32_t> nowhere(kRows);
  for (size_t k = 1; k + 1 < many.size(); ++k) many[k].place = nowhere.data();
  const RowTotal both({list_a, list_b}), mixed({list_a, whole_b}), third({list_c}), of_many(many);

  Table want(kRows, kCols, 7);
  std::vector<std::unique_ptr<Table>> got;
  for (int k = 0; k < 8; ++k) got.push_back(std::make_unique<Table>(kRows, kCols, 7, k % 2 == 1));
  for (int64_t n = 1; n <= 3; ++n) {
    CHECK(update({want.with({&ab, &c})}, n));
    for (size_t k = 0; k < got.size(); ++k) {
      const RowTotal& first = k < 4 ? both : k < 6 ? mixed : of_many;
      UpdateParameter p = got[k]->listed({&first, &third});
      if (k == 2 || k == 3) p.grad_rows[1] = nullptr, p.grads[1] = c.data();  // the second use is whole
      set_num_threads(static_cast<int>(k % 3) + 1);
      CHECK(update({p}, n));
      CHECK(got[k]->equals(want));
      if (k % 2 == 1) CHECK(got[k]->has_fresh_packs());
    }
  }
  set_num_threads(0);
}

TEST_CASE("processes that own parts of a table have the bits of one") {
  constexpr int64_t kRows = 200, kCols = 9, kBorders[] = {0, 64, 128, kRows};
  const std::vector<int32_t> ids = some_rows(kRows, 4);
  const auto g = only_rows(numbers(14, kRows * kCols), kCols, ids);
  const RowList list(g, kRows, kCols, ids);
  const RowTotal total({list});
  Table whole(kRows, kCols, 8), listed(kRows, kCols, 8), packed(kRows, kCols, 8, true);
  for (int64_t n = 1; n <= 2; ++n) {
    CHECK(update({whole.with({&g})}, n));
    for (Table* table : {&listed, &packed})
      for (int part = 2; part >= 0; --part) {
        UpdateParameter p = table->listed({&total});
        p.first_row = kBorders[part], p.rows = kBorders[part + 1] - p.first_row, p.matrix_rows = kRows;
        p.grad_begin = p.first_row * kCols;
        p.w += p.grad_begin, p.row_moment += p.first_row, p.row_update += p.first_row;
        CHECK(update({p}, n));
      }
    CHECK(listed.equals(whole));
    CHECK(packed.equals(whole));
    CHECK(packed.has_fresh_packs());
  }
}

TEST_CASE("rows without a gradient do not change, and make up their decay later") {
  constexpr int64_t kRows = 40, kCols = 5;
  const auto g = only_rows(numbers(15, kRows * kCols), kCols, {3});
  const auto h = only_rows(numbers(16, kRows * kCols), kCols, {4});
  const RowList list(g, kRows, kCols, {3, 7});  // row 7 has a gradient of zeros
  const RowTotal total({list});
  for (const bool lists : {false, true}) {
    const Table before(kRows, kCols, 9);
    Table a(kRows, kCols, 9);
    for (int64_t n = 1; n <= 5; ++n) CHECK(update({lists ? a.listed({&total}) : a.with({&g})}, n));
    for (int64_t r = 0; r < kRows; ++r) {
      const auto of = [&](const Table& t) { return std::vector<float>(&t.w[r * kCols], &t.w[r * kCols] + kCols); };
      CHECK((of(a) == of(before)) == (r != 3));
      CHECK(a.last[r] == (r == 3 ? 5 : 0));
      CHECK((a.sum[r] > 0) == (r == 3));
    }
    CHECK(update({a.with({&h})}, 6));
    CHECK(a.last[4] == 6);
    for (int64_t k = 4 * kCols; k < 5 * kCols; ++k) {
      const double kept = before.w[k] * std::pow(1 - kDecay, 6);
      const double step = kLr * kScale * h[k] / (std::sqrt(double(a.sum[4])) + kEps);
      CHECK(std::fabs(a.w[k] - (kept - step)) <= tolerance("row_adagrad.w"));
    }
  }
}

TEST_CASE("infinity and NaN are reported; the count of updates is bounded") {
  constexpr int64_t kRows = 130, kCols = 33;
  const std::vector<int32_t> ids = {100, 3};
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (const int where : {0, 1, 2})
      for (const bool packs : {false, true}) {
        auto g = only_rows(numbers(17, kRows * kCols), kCols, ids);
        Table a(kRows, kCols, 10, packs);
        CHECK(update({a.with({&g})}, 1));
        (where == 0 ? g[100 * kCols + 32] : where == 1 ? a.w[100 * kCols] : a.sum[100]) = bad;
        const RowList list(g, kRows, kCols, ids);
        const RowTotal total({list});
        Table b = a;
        CHECK_FALSE(update({a.with({&g})}, 2));
        CHECK_FALSE(update({b.listed({&total})}, 2));
      }
  const auto g = numbers(18, kRows * kCols);
  Table a(kRows, kCols, 11);
  CHECK(update({a.with({&g})}, (1 << 24) - 1));
  CHECK(a.last[5] == (1 << 24) - 1);
  CHECK_THROWS_AS(update({a.with({&g})}, 1 << 24), Error);
  CHECK_THROWS_AS(update({a.with({})}, 2), Error);
}
