// The row and the sign of an n-gram; see ngram_rows.h for the formula.
#pragma once

#include <cstdint>
#include <span>

#include "mudd/base/mix_bits.h"

namespace mudd {

constexpr int64_t kMostNgramOrder = 3;

// The ids of a sample, by positions of the call: negative positions are in the cache.
struct NgramTokens {
  const int32_t* ids = nullptr;
  const int32_t* segments = nullptr;            // or null
  const float* cache = nullptr;                 // or null
  int64_t cached = 0, cache_rows = 0, end = 0;  // ids before the call, Tmax, the token that ends a document

  int32_t operator()(int64_t t) const {
    return t >= 0 ? ids[t] : static_cast<int32_t>(cache[(cached + t) % cache_rows]);
  }
  // Return the number of tokens before t that belong to its document, at most kMostNgramOrder - 1.
  int64_t before(int64_t t) const {
    int64_t n = 0;
    while (n + 1 < kMostNgramOrder && cached + t - n > 0 && are_joined(t - n - 1)) ++n;
    return n;
  }

 private:
  // Return true if positions t and t + 1 belong to one document.
  bool are_joined(int64_t t) const { return (*this)(t) != end && (!segments || segments[t] == segments[t + 1]); }
};

// Write the rows and signs of the n-grams of all orders that end at position t.
inline void hash_ngrams(const NgramTokens& tokens, int64_t t, std::span<const int64_t> orders, int64_t seed,
                        int64_t rows, int32_t* ids, float* signs) {
  const int64_t before = tokens.before(t);
  for (const int64_t order : orders) {
    uint64_t h = mix_bits(static_cast<uint64_t>(seed) * 4 + static_cast<uint64_t>(order));
    for (int64_t back = order - 1; back >= 0; --back)
      h = mix_bits(h + (back <= before ? static_cast<uint64_t>(tokens(t - back)) + 1 : 0));
    *ids++ = static_cast<int32_t>((h >> 32) * static_cast<uint64_t>(rows) >> 32);
    *signs++ = h % 2 == 0 ? 1.0f : -1.0f;
  }
}

}  // namespace mudd
