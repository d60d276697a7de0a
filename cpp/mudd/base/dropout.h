// The elements that dropout keeps (Srivastava et al. 2014): a pure function of (seed, place, step, sample,
// position, element), so the backward pass draws the same, and no order, thread, split of the batch or rank
// changes it.
//   kept  <=>  element e mod 4 of Philox(key of seed and place)(step, sample, position, e / 4) >= threshold
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "mudd/base/rng.h"

namespace mudd {

struct Dropout {
  PhiloxKey key;
  uint32_t step = 0, sample = 0;  // sample: of the first row, counted over the whole run
  uint32_t threshold = 0;         // 0: keep everything
  float kept = 1.0f;              // factor of kept elements, 1 / (1 - rate)

  Dropout() = default;
  // rate in [0, 1)
  Dropout(double rate, uint64_t seed, std::string_view place, int64_t step_, int64_t first_sample)
      : key(philox_key(seed, place)),
        step(static_cast<uint32_t>(step_)),
        sample(static_cast<uint32_t>(first_sample)),
        threshold(static_cast<uint32_t>(std::min(std::ceil(rate * 0x1p32), 0x1p32 - 1))),
        kept(static_cast<float>(1.0 / (1.0 - rate))) {}

  explicit operator bool() const { return threshold > 0; }
  // Return the factor of one element of a sample, counted from `sample`.
  float factor(int64_t of_sample, int64_t position, int64_t element) const {
    const auto narrow = [](int64_t n) { return static_cast<uint32_t>(n); };
    const PhiloxBlock words =
        philox({step, sample + narrow(of_sample), narrow(position), narrow(element / 4)}, key);
    return words[static_cast<size_t>(element % 4)] < threshold ? 0.0f : kept;
  }
};

}  // namespace mudd
