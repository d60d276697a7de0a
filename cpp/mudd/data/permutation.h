// A keyed permutation of [0, n) evaluated by index: the order of samples without a table (contracts 15).
//
// A balanced Feistel network of eight rounds on the smallest even count of bits for n. Its round function is
// one 32-bit value of Philox keyed by (seed, purpose) and the epoch. Values at or above n pass through the
// network until one falls below (cycle walking), at most four times on average. Each index is computed alone,
// so the state of the data order is one integer, and it does not depend on workers, ranks or file order.
#pragma once

#include <bit>
#include <cstdint>

#include "mudd/base/rng.h"

namespace mudd {

class Permutation {
 public:
  // n in [1, 2^62]; `epoch` selects one of 2^32 permutations of the same key.
  Permutation(uint64_t n, PhiloxKey key, uint32_t epoch)
      : n_(n),
        key_(key),
        epoch_(epoch),
        half_bits_(n <= 1 ? 0 : (static_cast<int>(std::bit_width(n - 1)) + 1) / 2) {}

  // Return the image of `index`, which is in [0, n).
  uint64_t operator()(uint64_t index) const {
    if (half_bits_ == 0) return 0;
    uint64_t x = index;
    do x = network(x);
    while (x >= n_);
    return x;
  }

 private:
  static constexpr uint32_t kRounds = 8;

  uint64_t network(uint64_t x) const {
    const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    uint64_t left = x >> half_bits_, right = x & mask;
    for (uint32_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (philox({epoch_, round, 0, static_cast<uint32_t>(right)}, key_)[0] & mask);
      left = right;
      right = mixed;
    }
    return (left << half_bits_) | right;
  }

  uint64_t n_;
  PhiloxKey key_;
  uint32_t epoch_;
  int half_bits_;
};

}  // namespace mudd
