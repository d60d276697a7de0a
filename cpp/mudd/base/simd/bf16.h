// bf16 numbers in memory as Vec: widened on load, rounded to nearest even on store (NaN stays NaN).
#pragma once

#include <cstring>

#include "mudd/base/simd/vec.h"
#include "mudd/base/types.h"

namespace mudd::MUDD_ISA {

// n numbers from p; other lanes zero.
inline Vec load(const bf16* p, int n) {
  uint32_t wide[Vec::kLanes] = {};
  for (int i = 0; i < n; ++i) wide[i] = uint32_t{p[i].bits} << 16;
  float lanes[Vec::kLanes];
  std::memcpy(lanes, wide, sizeof lanes);
  return Vec::load(lanes);
}

inline void store(bf16* p, Vec v, int n) {
  float lanes[Vec::kLanes];
  uint32_t wide[Vec::kLanes];
  v.store(lanes);
  std::memcpy(wide, lanes, sizeof wide);
  for (int i = 0; i < n; ++i) {
    const bool is_nan = (wide[i] & 0x7fffffffu) > 0x7f800000u;
    const uint32_t rounded = wide[i] + 0x7fffu + ((wide[i] >> 16) & 1u);
    p[i].bits = static_cast<uint16_t>(is_nan ? 0x7fc0u : rounded >> 16);
  }
}

}  // namespace mudd::MUDD_ISA
