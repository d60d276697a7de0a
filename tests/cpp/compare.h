// Shared by the C++ tests: tolerances in epsilons of the type, deterministic test numbers, node runner.
#pragma once

#include <doctest/doctest.h>

#include <cinttypes>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "mudd/base/mix_bits.h"
#include "mudd/base/types.h"

namespace mudd::test {

// The bound of a result by its name in tests/tolerances.inc, relative to the largest reference entry.
inline double tolerance(std::string_view result) {
  constexpr double f32 = std::numeric_limits<float>::epsilon(), bf16 = 1.0 / 256;
  struct Row {
    std::string_view name;
    double bound;
  };
  static constexpr Row kTable[] = {
#define MUDD_TOLERANCE(type, name, growth, seen, reason) {#name, growth * type},
#include "../tolerances.inc"
#undef MUDD_TOLERANCE
  };
  for (const Row& row : kTable)
    if (row.name == result) return row.bound;
  throw std::invalid_argument("tests/tolerances.inc has no " + std::string(result));
}

// Numbers in [-1, 1) from a counter: same on every machine, no shared state.
inline float number(uint64_t seed, uint64_t i) {
  const uint64_t z = mix_bits(seed * 0x9e3779b97f4a7c15ull + (i + 1) * 0xbf58476d1ce4e5b9ull);
  return static_cast<float>(static_cast<double>(z >> 40) / 8388608.0 - 1.0);
}

inline std::vector<float> numbers(uint64_t seed, int64_t n) {
  std::vector<float> v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v[static_cast<size_t>(i)] = number(seed, static_cast<uint64_t>(i));
  return v;
}

// The nearest bf16, ties to even, and a bf16 as fp32.
inline bf16 to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}
inline float from_bf16(bf16 x) {
  const uint32_t bits = uint32_t{x.bits} << 16;
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}
inline std::vector<float> rounded(std::vector<float> v) {
  for (float& x : v) x = from_bf16(to_bf16(x));
  return v;
}

// A hash of the results that this program has compared, for comparison with another machine (tests/aarch64.py).
inline uint64_t results_hash = 0;

// All NaN have one hash: their sign and payload depend on the CPU.
inline uint64_t hash_of(float x, uint64_t hash) {
  uint32_t bits = 0x7fc00000u;
  if (!std::isnan(x)) std::memcpy(&bits, &x, sizeof bits);
  hash = (hash ^ bits) * 0x9e3779b97f4a7c15ull;
  return hash ^ hash >> 29;
}

inline std::vector<double> widen(const std::vector<float>& v) { return {v.begin(), v.end()}; }

// Largest |got - want| over the largest |want| (at least 1e-30); nan if anything is not finite.
template <class Got, class Want>
double distance(const Got& got, const Want& want, size_t n) {
  double worst = 0, scale = 1e-30;
  for (size_t i = 0; i < n; ++i) results_hash = hash_of(static_cast<float>(got[i]), results_hash);
  for (size_t i = 0; i < n; ++i) scale = std::max(scale, std::fabs(static_cast<double>(want[i])));
  for (size_t i = 0; i < n; ++i) {
    const double d = std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    if (!(d <= std::numeric_limits<double>::max())) return std::numeric_limits<double>::quiet_NaN();
    worst = std::max(worst, d);
  }
  return worst / scale;
}

// Equal to the last bit: no tolerance, and a NaN equals itself.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  if constexpr (std::is_same_v<T, float>)
    for (const float x : a) results_hash = hash_of(x, results_hash);
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

#if defined(__aarch64__)
constexpr bool kOtherUnits = false;  // emulations of x86-64's bf16 units are tested there
#else
constexpr bool kOtherUnits = true;
#endif

// Prints which rows a test ran, with a hash of their results, and which the CPU cannot.
template <class Rows, class Body>
void for_each_row(const Rows& rows, Body body) {
  for (const auto& row : rows) {
    if (row.emulated() && !kOtherUnits) continue;
    if (!row.runs_here()) {
      std::printf("  %s.%s: not on this CPU\n", row.name, row.level);
      continue;
    }
    const uint64_t others = std::exchange(results_hash, 0);
    body(row);
    std::printf("  %s.%s: outputs %016" PRIx64 "\n", row.name, row.level, std::exchange(results_hash, others));
  }
}

}  // namespace mudd::test
