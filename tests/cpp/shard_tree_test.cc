// Both walks of the shard tree against a naive recursion, as expressions: the same additions, not only the same
// sum.
#include "mudd/base/shard_tree.h"

#include <string>
#include <vector>

#include "doctest/doctest.h"

namespace {

using namespace mudd;

// The left half is the largest power of two below the number of leaves.
std::string recursion(int first, int n) {
  if (n == 1) return std::to_string(first);
  int left = 1;
  while (2 * left < n) left *= 2;
  return "(" + recursion(first, left) + "+" + recursion(first + left, n - left) + ")";
}

std::string by_pairs(int n) {
  std::vector<std::string> sums;
  for (int i = 0; i < n; ++i) sums.push_back(std::to_string(i));
  shard_tree::pairs(n, [&](int left, int right) { sums[left] = "(" + sums[left] + "+" + sums[right] + ")"; });
  return sums[0];
}

std::string by_counter(int n) {
  std::vector<std::string> waiting(shard_tree::levels(n));
  for (int i = 0; i < n; ++i) {
    std::string sum = std::to_string(i);
    shard_tree::each_waiting(i, n, [&](int level) { sum = "(" + waiting.at(level) + "+" + sum + ")"; });
    waiting.at(shard_tree::level_of(i, n)) = sum;
  }
  return waiting.back();
}

// Runs of `part` leaves each, summed alone, then the sums as leaves: what micro-batches and ranks do.
std::string in_parts(int n, int part) {
  std::vector<std::string> sums;
  for (int first = 0; first < n; first += part) sums.push_back(recursion(first, part));
  shard_tree::pairs(n / part,
                    [&](int left, int right) { sums[left] = "(" + sums[left] + "+" + sums[right] + ")"; });
  return sums[0];
}

constexpr double total_of_five() {
  shard_tree::Counter<double, 4> sums;
  double total = 0;
  for (int i = 0; i < 5; ++i) total = sums.add(i, 5, i + 1);
  return total;
}

}  // namespace

TEST_CASE("shard tree: pairs and the counter make the additions of the recursion") {
  for (int n = 1; n <= 70; ++n) {
    CHECK(by_pairs(n) == recursion(0, n));
    CHECK(by_counter(n) == recursion(0, n));
  }
  CHECK(recursion(0, 6) == "(((0+1)+(2+3))+(4+5))");
  CHECK(by_counter(kMaxShards) == recursion(0, kMaxShards));
}

TEST_CASE("shard tree: parts that are powers of two are whole subtrees") {
  for (int part : {1, 2, 4, 8})
    for (int parts : {1, 2, 4, 8}) CHECK(in_parts(part * parts, part) == recursion(0, part * parts));
}

TEST_CASE("shard tree: the levels hold exactly what waits, at compile time too") {
  static_assert(shard_tree::levels(1) == 1 && shard_tree::levels(8) == 4 && shard_tree::levels(9) == 5);
  static_assert(shard_tree::level_of(3, 8) == 2 && shard_tree::level_of(7, 8) == 3 &&
                shard_tree::level_of(4, 5) == 3);
  static_assert(total_of_five() == 15);
}
