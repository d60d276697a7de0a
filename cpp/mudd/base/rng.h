// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// 2011).
//
// A draw is a pure function of (key, counter), so results depend on no call order, thread or rank (contracts 5):
//   key     = (seed, hash of the purpose or of the parameter's name)
//   counter = (step, global sample, layer, element)
// One call returns four independent 32-bit values; element e of a tensor is value e % 4 of the block e / 4.
//
//   const PhiloxKey key = philox_key(seed, "init.blocks.0.attn.q.w");
//   fill_normal(w, begin, end, stddev, key);     // the same values for any split of [0, n)
//
// The normals use base/math.h, so they have the same bits on every CPU.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "mudd/base/math.h"

namespace mudd {

struct PhiloxKey {
  uint32_t k0 = 0;
  uint32_t k1 = 0;
};

struct PhiloxCounter {
  uint32_t step = 0;
  uint32_t sample = 0;
  uint32_t layer = 0;
  uint32_t element = 0;
};

using PhiloxBlock = std::array<uint32_t, 4>;

// Hash the bytes of a purpose with FNV-1a, e.g. "data.permutation" or a parameter's name.
constexpr uint32_t hash_purpose(std::string_view purpose) {
  uint32_t h = 2166136261u;
  for (const char c : purpose) h = (h ^ static_cast<uint8_t>(c)) * 16777619u;
  return h;
}

// Return the key of one purpose. The upper half of a 64-bit seed is folded into the hash; it is zero for usual
// seeds.
constexpr PhiloxKey philox_key(uint64_t seed, std::string_view purpose) {
  const uint32_t high = static_cast<uint32_t>(seed >> 32);
  return {static_cast<uint32_t>(seed), hash_purpose(purpose) ^ (high * 0x9E3779B9u)};
}

// Run ten rounds of Philox4x32.
constexpr PhiloxBlock philox(PhiloxCounter counter, PhiloxKey key) {
  PhiloxBlock x = {counter.step, counter.sample, counter.layer, counter.element};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * x[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * x[2];
    x = {static_cast<uint32_t>(p1 >> 32) ^ x[1] ^ key.k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ x[3] ^ key.k1, static_cast<uint32_t>(p0)};
    key.k0 += 0x9E3779B9u;
    key.k1 += 0xBB67AE85u;
  }
  return x;
}

// Return a uniform value in [0, 1) with 24 bits: exact in fp32.
constexpr float uniform(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

// Return a uniform value in [0, 1) with 32 bits.
constexpr double uniform_double(uint32_t word) { return static_cast<double>(word) * 0x1p-32; }

// Return four standard normal values from one block (Box and Muller, 1958); |value| is at most 6.67.
inline std::array<double, 4> normals(const PhiloxBlock& words) {
  std::array<double, 4> out;
  for (int i = 0; i < 4; i += 2) {
    const double u = (static_cast<double>(words[i]) + 1.0) * 0x1p-32;  // (0, 1]
    const double radius = math::sqrt(-2.0 * math::log(u));
    const double angle = 2.0 * math::kPi * uniform_double(words[i + 1]);
    out[i] = radius * math::cos(angle);
    out[i + 1] = radius * math::sin(angle);
  }
  return out;
}

namespace detail {

// Return the Philox block of element e. A block has four elements, and its index fills two words of the counter.
constexpr PhiloxBlock element_block(int64_t element, uint32_t step, PhiloxKey key) {
  const uint64_t block = static_cast<uint64_t>(element) / 4;
  return philox({step, 0, static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(block)}, key);
}

// Set out[e - begin] = stddev * normal(e) or low + (high - low) * uniform(e), one block for four elements.
template <class FromBlock>
void fill(float* out, int64_t begin, int64_t end, uint32_t step, PhiloxKey key, FromBlock&& from_block) {
  for (int64_t e = begin; e < end;) {
    const auto values = from_block(element_block(e, step, key));
    do {
      out[e - begin] = static_cast<float>(values[e % 4]);
      ++e;
    } while (e < end && e % 4 != 0);
  }
}

}  // namespace detail

// Write elements [begin, end) of the normal tensor of `key`: mean 0, standard deviation `stddev`; out has end -
// begin floats.
inline void fill_normal(float* out, int64_t begin, int64_t end, double stddev, PhiloxKey key, uint32_t step = 0) {
  detail::fill(out, begin, end, step, key, [stddev](const PhiloxBlock& words) {
    auto z = normals(words);
    for (double& v : z) v *= stddev;
    return z;
  });
}

// The same for the normal distribution truncated at two deviations (an element outside is drawn again, with the
// next step as counter), scaled so that the result has standard deviation `stddev`.
inline void fill_truncated_normal(float* out, int64_t begin, int64_t end, double stddev, PhiloxKey key,
                                  uint32_t step = 0) {
  constexpr double kRest = 0.87962566103423978;  // deviation of the standard normal truncated at 2
  detail::fill(out, begin, end, step, key, [](const PhiloxBlock& words) { return normals(words); });
  for (int64_t e = begin; e < end; ++e) {
    double z = out[e - begin];
    for (uint32_t again = step + 1; z < -2.0 || z > 2.0; ++again)
      z = normals(detail::element_block(e, again, key))[static_cast<size_t>(e % 4)];
    out[e - begin] = static_cast<float>(z * (stddev / kRest));
  }
}

// Write elements [begin, end) of the uniform tensor of `key` in [low, high), rounded to fp32; out has end -
// begin floats.
inline void fill_uniform(float* out, int64_t begin, int64_t end, double low, double high, PhiloxKey key,
                         uint32_t step = 0) {
  detail::fill(out, begin, end, step, key, [low, high](const PhiloxBlock& words) {
    std::array<double, 4> u;
    for (int i = 0; i < 4; ++i) u[i] = low + (high - low) * uniform_double(words[i]);
    return u;
  });
}

}  // namespace mudd
