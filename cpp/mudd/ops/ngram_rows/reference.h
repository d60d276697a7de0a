// ngram_rows as a formula: every token is looked up again for every position.
#pragma once

#include <cstdint>
#include <vector>

#include "mudd/base/mix_bits.h"

namespace mudd::reference {

struct NgramHash {
  int64_t rows = 1, seed = 0, end = -1;

  struct Row {
    int32_t id;
    int sign;
  };
  // Return the row of the last `order` tokens of position t of a sample. segments may be null; end < 0: no token
  // ends a document.
  Row row(const int32_t* ids, const int32_t* segments, int64_t t, int64_t order) const {
    uint64_t h = mix_bits(static_cast<uint64_t>(seed) * 4 + static_cast<uint64_t>(order));
    for (int64_t back = order - 1; back >= 0; --back) {
      bool seen = t - back >= 0;
      for (int64_t p = t - back; seen && p < t; ++p)
        seen = ids[p] != end && (segments == nullptr || segments[p] == segments[t]);
      h = mix_bits(h + (seen ? static_cast<uint64_t>(ids[t - back]) + 1 : 0));
    }
    return {static_cast<int32_t>((h >> 32) * static_cast<uint64_t>(rows) >> 32), h % 2 == 0 ? 1 : -1};
  }
};

// Add sign * table[row] of each order to y [T, D], which starts with zeros, for one sample.
template <class N>
void ngram_rows(const NgramHash& hash, const std::vector<int64_t>& orders, const int32_t* ids,
                const int32_t* segments, int64_t length, int64_t d, const N* table, N* y) {
  for (int64_t t = 0; t < length; ++t)
    for (const int64_t order : orders) {
      const auto [id, sign] = hash.row(ids, segments, t, order);
      for (int64_t c = 0; c < d; ++c) y[t * d + c] += N(sign) * table[id * d + c];
    }
}

// Add the gradient of the table of one sample to dtable.
template <class N>
void ngram_rows_backward(const NgramHash& hash, const std::vector<int64_t>& orders, const int32_t* ids,
                         const int32_t* segments, int64_t length, int64_t d, const N* dy, N* dtable) {
  for (int64_t t = 0; t < length; ++t)
    for (const int64_t order : orders) {
      const auto [id, sign] = hash.row(ids, segments, t, order);
      for (int64_t c = 0; c < d; ++c) dtable[id * d + c] += N(sign) * dy[t * d + c];
    }
}

}  // namespace mudd::reference
