#include "mudd/data/index_cipher.h"

#include <algorithm>
#include <array>
#include <bit>
#include <random>

#include "mudd/base/check.h"

namespace mudd {

IndexCipher::IndexCipher(uint64_t n, uint32_t seed) : n_(n) {
  check(n >= 1 && n <= (uint64_t{1} << 32), "order", "records: expected 1 to 2^32, got ", n);
  // The bits of a value below n - 1: without 2^k itself, which is the cause of the quirk above.
  const int needed = n <= 2 ? 0 : static_cast<int>(std::bit_width(n - 2));
  const int bits = std::max(16, needed + (needed & 1));
  half_bits_ = bits / 2;
  mask_ = (uint64_t{1} << half_bits_) - 1;
  std::seed_seq sequence{seed};
  std::array<uint32_t, 4> words{};
  sequence.generate(words.begin(), words.end());
  std::copy(words.begin(), words.end(), keys_);
}

uint64_t IndexCipher::round_function(uint64_t v) const {
  const auto rotated = [&](int by) { return ((v << by) | (v >> (half_bits_ - by))) & mask_; };
  return (rotated(1) & rotated(8 % half_bits_)) ^ rotated(2);
}

uint64_t IndexCipher::operator()(uint64_t index) const {
  if (n_ == 1) return 0;
  uint64_t x = index;
  do {
    uint64_t left = (x >> half_bits_) & mask_, right = x & mask_;
    for (int k = 0; k < 4; k += 2) {
      left ^= round_function(right) ^ (keys_[k] & mask_);
      right ^= round_function(left) ^ (keys_[k + 1] & mask_);
    }
    x = (left << half_bits_) | right;
  } while (x >= n_);
  return x;
}

}  // namespace mudd
