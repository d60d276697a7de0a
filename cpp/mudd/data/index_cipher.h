// The record order of the loader `grain`: a Simon-like cipher on indices, evaluated one index at a time. It has
// two halves of W bits; W is half of the bits of n - 1, at least 8, and the rounds repeat until the result is
// below n.
#pragma once

#include <cstdint>

namespace mudd {

class IndexCipher {
 public:
  // n in [1, 2^32].
  IndexCipher(uint64_t n, uint32_t seed);

  // Return the image of `index`, which is in [0, n). No permutation for n = 2^k + 1 with k >= 16 even: as in
  // the original, the highest index then has the image of 0.
  uint64_t operator()(uint64_t index) const;

 private:
  uint64_t round_function(uint64_t v) const;

  uint64_t n_;
  int half_bits_;
  uint64_t mask_;
  uint64_t keys_[4];
};

}  // namespace mudd
