// Batches: windows of training and validation, the same for every way to ask.
#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "mudd/base/check.h"
#include "mudd/data/batcher.h"
#include "temp_tokens.h"

using namespace mudd;
using namespace mudd::test;

TEST_CASE("training windows: each once an epoch, sharing one token, cut elsewhere in every epoch") {
  constexpr int64_t N = 10007, T = 32;
  TempTokens<uint16_t> file(counting<uint16_t>(N, 60000), 60000);
  Batcher batcher(file.spec, BatchOrder::shuffled, T, 5, 0);
  const int64_t n = batcher.rows();
  CHECK(n == (N - T) / T);
  std::set<int64_t> offsets;
  std::vector<int32_t> inputs(T), targets(T);
  for (int64_t epoch = 0; epoch < 6; ++epoch) {
    std::set<int64_t> starts;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t start = batcher.start_of(epoch * n + i);
      REQUIRE(start + T < N);
      starts.insert(start);
      CHECK(batcher.fill(epoch * n + i, 1, {inputs.data(), targets.data()}) == T);
      for (int64_t t = 0; t < T; ++t) {
        REQUIRE(inputs[static_cast<size_t>(t)] == start + t);
        REQUIRE(targets[static_cast<size_t>(t)] == start + t + 1);
      }
    }
    CHECK(static_cast<int64_t>(starts.size()) == n);
    CHECK(*starts.rbegin() - *starts.begin() == (n - 1) * T);
    CHECK(*starts.begin() < T);
    offsets.insert(*starts.begin());
  }
  CHECK(offsets.size() >= 4);
}

TEST_CASE("all start offsets occur and the last window of the largest fits, for every length near a multiple") {
  constexpr int64_t T = 4;
  for (int64_t N = T + 1; N <= 6 * T + 1; ++N) {
    TempTokens<uint16_t> file(counting<uint16_t>(N, 60000), 60000);
    Batcher batcher(file.spec, BatchOrder::shuffled, T, 1, 0);
    std::set<int64_t> offsets;
    for (int64_t epoch = 0; epoch < 200; ++epoch) {
      int64_t lowest = N;
      for (int64_t i = 0; i < batcher.rows(); ++i) {
        const int64_t start = batcher.start_of(epoch * batcher.rows() + i);
        REQUIRE(start + T < N);
        lowest = std::min(lowest, start);
      }
      offsets.insert(lowest);
    }
    CHECK(static_cast<int64_t>(offsets.size()) == std::min(T, N - batcher.rows() * T));
  }
}

TEST_CASE("a batch depends on its sample index only") {
  constexpr int64_t N = 5000, T = 16;
  TempTokens<uint16_t> file(counting<uint16_t>(N, 60000), 60000);
  Batcher a(file.spec, BatchOrder::shuffled, T, 5, 0), b(file.spec, BatchOrder::shuffled, T, 5, 0),
      other(file.spec, BatchOrder::shuffled, T, 6, 0);
  std::vector<int32_t> all(64 * T), all_targets(64 * T), one(T), one_target(T);
  a.fill(100, 64, {all.data(), all_targets.data()});
  int same_with_other_seed = 0;
  for (int64_t s = 63; s >= 0; --s) {  // the other way round, one by one, from another object
    b.fill(100 + s, 1, {one.data(), one_target.data()});
    CHECK(std::memcmp(one.data(), all.data() + s * T, T * sizeof(int32_t)) == 0);
    CHECK(std::memcmp(one_target.data(), all_targets.data() + s * T, T * sizeof(int32_t)) == 0);
    same_with_other_seed += other.start_of(100 + s) == b.start_of(100 + s);
  }
  CHECK(same_with_other_seed < 8);
  // Kept for ever: a checkpoint's data state means these samples.
  CHECK(a.rows() == 311);
  const std::vector<int64_t> golden = {3199, 271, 2159, 575, 593, 4945, 625};
  for (size_t s = 0; s < golden.size(); ++s) CHECK(a.start_of(static_cast<int64_t>(s) * 100) == golden[s]);
}

TEST_CASE("validation predicts every token after the first once and pads the rest") {
  for (const int64_t N : {2, 3, 16, 17, 18, 33, 100}) {
    constexpr int64_t T = 16;
    TempTokens<uint16_t> file(counting<uint16_t>(N, 60000), 60000);
    Batcher batcher(file.spec, BatchOrder::sequential, T, 0, 7);
    const int64_t n = batcher.rows();
    CHECK(n == (N - 1 + T - 1) / T);
    std::vector<int32_t> inputs(static_cast<size_t>((n + 2) * T)), targets(inputs.size());
    CHECK(batcher.fill(0, n + 2, {inputs.data(), targets.data()}) == N - 1);
    for (int64_t i = 0; i < (n + 2) * T; ++i) {
      const size_t k = static_cast<size_t>(i);
      CHECK(targets[k] == (i < N - 1 ? i + 1 : -1));
      CHECK(inputs[k] == (i < N - 1 ? i : 7));
    }
  }
}

TEST_CASE("batcher refuses short corpora and bad numbers") {
  TempTokens<uint16_t> file(counting<uint16_t>(32, 100), 100);
  CHECK(message_of([&] { Batcher b(file.spec, BatchOrder::shuffled, 32, 0, 0); }).find("at least one window") !=
        std::string::npos);
  Batcher fits(file.spec, BatchOrder::shuffled, 31, 0, 0);
  CHECK(fits.rows() == 1);
  CHECK_THROWS_AS(Batcher(file.spec, BatchOrder::shuffled, 0, 0, 0), Error);
  CHECK_THROWS_AS(Batcher(file.spec, BatchOrder::shuffled, 8, 0, 100), Error);
  CHECK_THROWS_AS(fits.start_of(-1), Error);
  std::vector<int32_t> row(31);
  CHECK_THROWS_AS(fits.fill(-1, 1, {row.data(), row.data()}), Error);
  TempTokens<uint16_t> one(counting<uint16_t>(1, 100), 100);
  CHECK_THROWS_AS(Batcher(one.spec, BatchOrder::sequential, 8, 0, 0), Error);
}
