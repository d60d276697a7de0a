// Units of parameters, and sums of gradients that are given by their rows.
#include "mudd/params/units.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "compare.h"
#include "mudd/base/row_gradient.h"
#include "mudd/base/shard_tree.h"

using namespace mudd;

namespace {

std::vector<int64_t> borders(const std::vector<int64_t>& shape, bool whole = false) {
  const Parameter p{.name = "p", .shape = shape};
  std::vector<int64_t> found;
  for (int64_t at = 0; at < p.size();) found.push_back(at = next_border(p, at, whole));
  return found;
}

}  // namespace

TEST_CASE("units: rows of a matrix, blocks of a vector, matrices of a stack") {
  using Borders = std::vector<int64_t>;
  CHECK(borders({10000}) == Borders{4096, 8192, 10000});
  CHECK(borders({}) == Borders{1});
  CHECK(borders({150, 512}) == Borders{64 * 512, 128 * 512, 150 * 512});
  CHECK(borders({150, 512}, true) == Borders{150 * 512});
  CHECK(borders({3000, 100}) == Borders{1024 * 100, 2048 * 100, 3000 * 100});  // 1,024 x 100 = 25 x 4,096
  CHECK(borders({40, 96}) == Borders{40 * 96});
  CHECK(borders({2, 96, 128}) == Borders{64 * 128, 96 * 128, 160 * 128, 192 * 128});
  CHECK(borders({2, 96, 128}, true) == Borders{96 * 128, 192 * 128});
  CHECK(borders({5, 64, 32}) == Borders{4096, 8192, 10240});  // two matrices of 2,048 each make a whole block
}

TEST_CASE("units: borders inside of a parameter are whole blocks of the norm and whole panels") {
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
           {7, 33}, {5000, 48}, {900, 100}, {3, 130, 64}, {9, 10, 12}, {70000}, {4097}})
    for (int64_t at : borders(shape)) {
      const Parameter p{.name = "p", .shape = shape};
      const int64_t row = at / p.cols() % p.matrix_rows();
      CHECK((at == p.size() || at % kUnitElements == 0));
      CHECK((shape.size() < 2 || at == p.size() || (at % p.cols() == 0 && row % kUnitRows == 0)));
    }
}

TEST_CASE("the total of rows over processes has the bits of the tree over whole tables") {
  constexpr int64_t kRows = 11, kWidth = 70;
  for (int n : {1, 2, 3, 4, 5, 8}) {
    std::vector<std::vector<float>> values(n);
    std::vector<std::vector<int32_t>> place(n);
    std::vector<std::vector<float>> whole(n, std::vector<float>(kRows * kWidth));
    std::vector<RowGradient> leaves;
    for (int i = 0; i < n; ++i) {
      place[i].assign(kRows, 0);
      for (int64_t r = 0; r < kRows; ++r) {
        if ((r * 7 + i * 3) % 5 < 2 || r == 4) continue;  // row 4 is nobody's
        place[i][r] = static_cast<int32_t>(1 + values[i].size() / kWidth);
        for (int64_t c = 0; c < kWidth; ++c) {
          const auto x = static_cast<float>(((i * 31 + r * 17 + c * 13) % 101) / 7.0 - 5);
          values[i].push_back(x);
          whole[i][r * kWidth + c] = x;
        }
      }
      leaves.push_back(
          {.table_rows = kRows, .width = kWidth, .values = values[i].data(), .place = place[i].data()});
    }
    shard_tree::pairs(n, [&](int left, int right) {
      for (size_t k = 0; k < whole[left].size(); ++k) whole[left][k] += whole[right][k];
    });
    std::vector<float> got(kRows * kWidth, NAN);
    RowTotal(leaves).copy(5, kRows * kWidth - 5, got.data() + 5);
    CHECK(std::memcmp(got.data() + 5, whole[0].data() + 5, (got.size() - 5) * sizeof(float)) == 0);
  }
}
