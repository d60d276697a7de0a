// Random numbers and permutations.
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "doctest/doctest.h"
#include "mudd/base/mix_bits.h"
#include "mudd/base/rng.h"
#include "mudd/data/permutation.h"

using namespace mudd;

TEST_CASE("philox gives the published vectors") {
  // kat_vectors of Random123, philox 4x32 10.
  CHECK(philox({0, 0, 0, 0}, {0, 0}) == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) == PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("mix_bits gives the first numbers of SplitMix64 with the seed 0") {
  constexpr uint64_t kIncrement = 0x9e3779b97f4a7c15;
  CHECK(mix_bits(kIncrement) == 0xe220a8397b1dcdaf);
  CHECK(mix_bits(2 * kIncrement) == 0x6e789e6aa1b965f4);
  CHECK(mix_bits(3 * kIncrement) == 0x06c45d188009454f);
}

TEST_CASE("keys differ by seed, by either half of it, and by purpose") {
  std::set<std::pair<uint32_t, uint32_t>> keys;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, (uint64_t{1} << 32) + 1}) {
    for (const char* purpose : {"init.head", "init.embed", "data.order"}) {
      const PhiloxKey key = philox_key(seed, purpose);
      keys.insert({key.k0, key.k1});
    }
  }
  CHECK(keys.size() == 12);
}

TEST_CASE("normals have the moments of the normal distribution and do not depend on the cut") {
  constexpr int64_t n = 400000;
  std::vector<float> all(n), cut(n);
  const PhiloxKey key = philox_key(7, "init.blocks.0.attn.q.w");
  fill_normal(all.data(), 0, n, 0.5, key);
  for (int64_t begin = 0, step = 1; begin < n; begin += step, step = step * 3 + 1) {
    const int64_t end = std::min(n, begin + step);
    fill_normal(cut.data() + begin, begin, end, 0.5, key);
  }
  CHECK(std::memcmp(all.data(), cut.data(), n * sizeof(float)) == 0);
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0, lag = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double z = all[static_cast<size_t>(i)] / 0.5;
    m1 += z, m2 += z * z, m3 += z * z * z, m4 += z * z * z * z;
    if (i > 0) lag += z * all[static_cast<size_t>(i - 1)] / 0.5;
  }
  const double sigma = 1 / std::sqrt(static_cast<double>(n));
  CHECK(std::abs(m1 / n) < 4 * sigma);
  CHECK(std::abs(m2 / n - 1) < 4 * sigma * std::sqrt(2.0));
  CHECK(std::abs(m3 / n) < 4 * sigma * std::sqrt(15.0));
  CHECK(std::abs(m4 / n - 3) < 4 * sigma * std::sqrt(96.0));
  CHECK(std::abs(lag / n) < 4 * sigma);
}

TEST_CASE("uniforms stay in range and fill it evenly") {
  CHECK(uniform(0xFFFFFFFFu) < 1.0f);
  CHECK(uniform(0) == 0.0f);
  std::vector<float> u(100000);
  fill_uniform(u.data(), 0, 100000, -2.0, 6.0, philox_key(1, "test"));
  std::vector<int> bins(8, 0);
  for (const float x : u) {
    REQUIRE(x >= -2.0f);
    REQUIRE(x <= 6.0f);
    ++bins[std::min(7, static_cast<int>(x + 2.0f))];
  }
  for (const int b : bins) CHECK(std::abs(b - 12500) < 4 * std::sqrt(12500.0));
}

TEST_CASE("a permutation is one for every size, and epochs and seeds give different ones") {
  for (const uint64_t n : {1u, 2u, 3u, 4u, 5u, 15u, 16u, 17u, 255u, 256u, 257u, 1000u, 4097u}) {
    const Permutation p(n, philox_key(3, "data.order"), 0);
    std::vector<char> seen(n, 0);
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t image = p(i);
      REQUIRE(image < n);
      CHECK(seen[image]++ == 0);
    }
  }
  constexpr uint64_t n = 1000;
  const Permutation a(n, philox_key(3, "data.order"), 0), b(n, philox_key(3, "data.order"), 1),
      c(n, philox_key(4, "data.order"), 0);
  int same_epoch = 0, same_seed = 0, fixed = 0, neighbours = 0;
  for (uint64_t i = 0; i < n; ++i) {
    same_epoch += a(i) == b(i);
    same_seed += a(i) == c(i);
    fixed += a(i) == i;
    neighbours += a((i + 1) % n) == (a(i) + 1) % n;
  }
  for (const int matches : {same_epoch, same_seed, fixed, neighbours}) CHECK(matches < 10);  // 1 expected
}

TEST_CASE("every image of an index is about equally likely over the keys") {
  std::vector<int> counts(7, 0);
  for (uint64_t seed = 0; seed < 7000; ++seed) ++counts[Permutation(7, philox_key(seed, "data.order"), 0)(3)];
  for (const int c : counts) CHECK(std::abs(c - 1000) < 5 * std::sqrt(1000.0));
}
