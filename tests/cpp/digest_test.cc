// digest: every element, its place, the length and the stride count; threads and blocks do not.
#include "mudd/graph/digest.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "mudd/base/parallel.h"

using namespace mudd;

namespace {

Tensor rows_of(std::vector<float>& values, int64_t rows, int64_t cols, int64_t stride) {
  return {.data = values.data(), .rows = rows, .cols = cols, .stride = stride};
}

}  // namespace

TEST_CASE("a flipped bit in any element changes the digest, at all lengths") {
  for (const int64_t n : {1, 7, 16, 17, 1000, 16384, 16385, 40000}) {
    std::vector<float> values(static_cast<size_t>(n), 0.5f);
    std::set<Digest> seen{digest_of(rows_of(values, 1, n, n))};
    const int64_t step = std::max<int64_t>(1, n / 50);
    int64_t flips = 0;
    for (int64_t i = 0; i < n; i += step, ++flips) {
      reinterpret_cast<uint32_t&>(values[i]) ^= 1;
      seen.insert(digest_of(rows_of(values, 1, n, n)));
      reinterpret_cast<uint32_t&>(values[i]) ^= 1;
    }
    CHECK(std::ssize(seen) == flips + 1);
  }
}

TEST_CASE("lengths, gaps between rows and threads") {
  std::vector<float> zeros(70000);
  std::set<Digest> seen;
  for (int64_t n = 1; n < 200; ++n) seen.insert(digest_of(rows_of(zeros, 1, n, n)));
  CHECK(seen.size() == 199);  // zeros of other lengths differ
  std::vector<float> dense, wide(300 * 80, -1.0f);
  for (int64_t r = 0; r < 300; ++r)
    for (int64_t c = 0; c < 70; ++c) dense.push_back(wide[r * 80 + c] = static_cast<float>(r * 70 + c));
  const Digest want = digest_of(rows_of(dense, 300, 70, 70));
  CHECK(digest_of(rows_of(wide, 300, 70, 80)) == want);
  CHECK(rows_digest(rows_of(wide, 300, 70, 80), 3, 2) == rows_digest(rows_of(dense, 300, 70, 70), 3, 2));
  const int threads = num_threads();
  for (const int n : {1, 2, 5}) {
    set_num_threads(n);
    CHECK(digest_of(rows_of(dense, 300, 70, 70)) == want);
  }
  set_num_threads(threads);
}
