// The finalizer of SplitMix64 (Steele et al. 2014), a hash of 64 bits.
#pragma once

#include <cstdint>

namespace mudd {

// Return a one-to-one mix of the bits: each bit of h changes about half of the bits of the result.
constexpr uint64_t mix_bits(uint64_t h) {
  h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9u;
  h = (h ^ (h >> 27)) * 0x94D049BB133111EBu;
  return h ^ (h >> 31);
}

}  // namespace mudd
