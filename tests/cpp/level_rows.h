// Runs a kernel table's rows of all levels on the same drawn operands and compares their outputs bit for bit.
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "compare.h"
#include "mudd/base/parallel.h"

namespace mudd::test {

using Floats = std::vector<float>;

// The operands of one case: equal calls give equal numbers.
class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}

  int64_t between(int64_t low, int64_t high) {
    const double share = 0.5 * (static_cast<double>(next()) + 1);
    return low + static_cast<int64_t>(share * static_cast<double>(high - low + 1));
  }
  bool coin() { return between(0, 1) == 1; }

  // By turns in [-1, 1), whole quarters (their sums are often halfway between two floats), over many binades, and
  // mostly zeros of either sign.
  Floats floats(int64_t n) {
    const int64_t kind = between(0, 3);
    Floats x(static_cast<size_t>(n));
    for (float& v : x) {
      const float u = next();
      if (kind == 0) v = u;
      else if (kind == 1) v = 0.25f * static_cast<float>(static_cast<int>(u * 32));
      else if (kind == 2) v = std::ldexp(next(), static_cast<int>(u * 24));
      else v = u < 0.5f ? std::copysign(0.0f, u) : u;
    }
    return x;
  }
  Floats positive(int64_t n) {
    Floats x = floats(n);
    for (float& v : x) v = std::fabs(v) + 0.01f;
    return x;
  }

 private:
  float next() { return number(seed_, count_++); }

  uint64_t seed_, count_ = 0;
};

// NaN equals NaN: which operand's bits a NaN has is up to the instruction.
inline bool equal_numbers(const Floats& a, const Floats& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof a[i]) != 0 && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  return true;
}

inline Floats joined(std::initializer_list<Floats> parts) {
  Floats all;
  for (const Floats& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// run(kernels, draw) gives all outputs of a case; the rows run in the floating-point state of workers.
template <class Rows, class Run>
void check_levels(const Rows& rows, Run run, uint64_t cases = 200) {
  uint64_t hash = 0;
  for (uint64_t seed = 1; seed <= cases; ++seed) {
    Floats want;
    for (const auto& row : rows) {
      if (row.emulated() || !row.runs_here()) continue;
      Floats got;
      parallel_for(1, [&](int64_t, int) {
        Draw draw(seed);
        got = run(*row.kernels, draw);
      });
      if (want.empty()) {
        want = got;
        for (const float x : want) hash = hash_of(x, hash);
      }
      CAPTURE(row.name);
      CAPTURE(row.level);
      CAPTURE(seed);
      CHECK(equal_numbers(got, want));
    }
  }
  std::printf("  %s: outputs %016" PRIx64 "\n", rows[0].name, hash);
}

}  // namespace mudd::test
