// levels: lists of the rows of a gradient as other processes read them, and norms of gradients with a row list.
#include "mudd/base/row_gradient.h"

#include <array>

#include "compare.h"
#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/base/row_lists.h"
#include "mudd/kernels/reduce/reduce.h"
#include "row_lists.h"

using namespace mudd;
using namespace mudd::test;

TEST_CASE("a process reads the length of a list from the list, without the count") {
  constexpr int64_t kRows = 9;
  std::vector<float> values(kRows);
  std::vector<int32_t> ids(kRows), places(kRows);
  RowGradient own{.table_rows = kRows,
                  .width = 1,
                  .capacity = kRows,
                  .values = values.data(),
                  .ids = ids.data(),
                  .place = places.data()};
  const RowGradient other = own;
  CHECK(other.listed() == 0);
  // The list of a step keeps ids of earlier and longer lists at its end.
  for (const std::vector<int32_t>& list : std::vector<std::vector<int32_t>>{
           {3}, {0}, {8, 0, 5}, {5, 3, 0, 8, 1, 2, 7, 4, 6}, {0, 8}, {8, 5}, {3, 5, 1, 8}, {}, {1, 3, 5}, {4}}) {
    own.clear();
    for (size_t k = 0; k < list.size(); ++k) {
      CHECK(other.listed() == static_cast<int64_t>(k));
      CHECK(own.insert(list[k]));
      CHECK(own.insert(list[k]));  // it is there
    }
    CHECK(other.listed() == own.count);
    CHECK(own.count == static_cast<int64_t>(list.size()));
  }
  RowGradient whole = own;
  whole.ids = nullptr;
  CHECK_THROWS_AS(whole.listed(), Error);
}

TEST_CASE("row lists have each row of all uses and processes once; a whole gradient makes them incomplete") {
  constexpr int64_t kRows = 12, kWidth = 5;
  const std::vector<float> whole = numbers(1, kRows * kWidth);
  const RowList a(whole, kRows, kWidth, {7, 2}), b(whole, kRows, kWidth, {2, 9}), none(whole, kRows, kWidth, {});
  const RowTotal two({a, none, b}), one({b}), empty({none});
  const RowTotal* const uses[] = {&two, &empty, &one};
  const RowLists lists(uses);
  CHECK(lists.entries() == 6);
  std::vector<int64_t> rows;
  for (int64_t entry = 0; entry < lists.entries(); ++entry)
    if (lists.row(entry) >= 0) rows.push_back(lists.row(entry));
  CHECK(rows == std::vector<int64_t>{7, 2, 9});
  for (int64_t row = 0; row < kRows; ++row) CHECK(lists.has(row) == (row == 2 || row == 7 || row == 9));
  CHECK(RowLists::are_complete(uses));
  RowGradient all = b;
  all.ids = nullptr;
  const RowTotal with_whole({a, all}), many(std::vector<RowGradient>(64, a));
  for (const RowTotal* const other : {static_cast<const RowTotal*>(nullptr), &with_whole, &many}) {
    const RowTotal* const both[] = {&one, other};
    CHECK_FALSE(RowLists::are_complete(both));
  }
  CHECK(RowLists::are_complete(std::array<const RowTotal*, 1>{&many}));
}

TEST_CASE("norms of gradients with row lists have the bits of whole ones") {
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{20000, 1}, {700, 33}, {9, 4096}, {8, 4100}}) {
    const int64_t elements = rows * width;
    // In most blocks of the norm no row has a gradient.
    const auto last = static_cast<int32_t>(rows - 1);
    const std::vector<int32_t> ids = {static_cast<int32_t>(rows / 2), 0}, more = {last, ids[0]};
    const std::vector<float> g0 = only_rows(numbers(2, elements), width, ids);
    const std::vector<float> g1 = only_rows(numbers(3, elements), width, more);
    std::vector<float> sum = g0;
    for (size_t k = 0; k < sum.size(); ++k) sum[k] += g1[k];
    const std::vector<float> dense = numbers(4, elements);
    const RowList list0(g0, rows, width, ids), list1(g1, rows, width, more);
    const RowTotal one({list0}), two({list0, list1}), other({list1});
    const int64_t begin = elements > 2 * kNormBlock ? kNormBlock : 0;
    const GradientPlanes of_parts[][2] = {
        {{.planes = {g0.data()}, .n_planes = 1}, {.rows = {&one}, .n_planes = 1}},
        {{.planes = {sum.data()}, .n_planes = 1}, {.rows = {&two}, .n_planes = 1}},
        {{.planes = {sum.data(), g1.data()}, .n_planes = 2}, {.rows = {&two, &other}, .n_planes = 2}},
        {{.planes = {sum.data(), dense.data()}, .n_planes = 2},
         {.planes = {nullptr, dense.data()}, .rows = {&two}, .n_planes = 2}}};
    for (const auto& pair : of_parts) {
      GradientPlanes whole = pair[0], listed = pair[1];
      whole.begin = listed.begin = begin;
      whole.n = listed.n = elements - begin;
      std::vector<double> want(static_cast<size_t>(norm_blocks(whole.n)), -1), got = want;
      block_squares({&whole, 1}, want);
      for (const int threads : {1, 3}) {
        set_num_threads(threads);
        block_squares({&listed, 1}, got);
        CHECK(same_bits(got, want));
        CHECK(squared_norm(got) > 0);
      }
    }
  }
  set_num_threads(0);
}
