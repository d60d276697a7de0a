// ngram_ids as a formula: every token is looked up again for every position.
#pragma once

#include <cstdint>

namespace mudd::reference {

// Return the finalizer of SplitMix64 (Steele et al. 2014).
inline uint64_t ngram_mix(uint64_t h) {
  h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9u;
  h = (h ^ (h >> 27)) * 0x94D049BB133111EBu;
  return h ^ (h >> 31);
}

// Return the row of position t of a sample. segments may be null; end < 0: no token ends a document.
inline int32_t ngram_id(const int32_t* ids, const int32_t* segments, int64_t t, int64_t order, int64_t rows,
                        int64_t seed, int64_t end) {
  uint64_t h = ngram_mix(static_cast<uint64_t>(seed) * 4 + static_cast<uint64_t>(order));
  for (int64_t back = order - 1; back >= 0; --back) {
    bool seen = t - back >= 0;
    for (int64_t p = t - back; seen && p < t; ++p)
      seen = ids[p] != end && (segments == nullptr || segments[p] == segments[t]);
    h = ngram_mix(h + (seen ? static_cast<uint64_t>(ids[t - back]) + 1 : 0));
  }
  return static_cast<int32_t>((h >> 32) * static_cast<uint64_t>(rows) >> 32);
}

}  // namespace mudd::reference
