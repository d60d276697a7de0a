// A gradient of a table with a row list, for tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "mudd/base/row_gradient.h"

namespace mudd::test {

// The rows `ids` of a whole gradient [rows, width], with room for two more. As in shared memory, `count` is not
// set.
struct RowList : RowGradient {
  RowList(const std::vector<float>& whole, int64_t rows, int64_t width, const std::vector<int32_t>& ids)
      : numbers((ids.size() + 2) * static_cast<size_t>(width)),
        list(ids.size() + 2),
        places(static_cast<size_t>(rows)) {
    table_rows = rows, this->width = width, capacity = static_cast<int64_t>(list.size());
    values = numbers.data(), this->ids = list.data(), place = places.data();
    for (const int32_t id : ids) insert(id);
    for (size_t k = 0; k < ids.size(); ++k)
      std::copy_n(whole.begin() + ids[k] * width, width, values + static_cast<int64_t>(k) * width);
    count = 0;
  }
  RowList(const RowList&) = delete;
  std::vector<float> numbers;
  std::vector<int32_t> list, places;
};

// Return random numbers in the rows `ids` of a gradient [rows, width], and zeros in all others.
inline std::vector<float> only_rows(std::vector<float> numbers, int64_t width, const std::vector<int32_t>& ids) {
  for (int64_t r = 0; r * width < static_cast<int64_t>(numbers.size()); ++r)
    if (std::find(ids.begin(), ids.end(), r) == ids.end()) std::fill_n(numbers.begin() + r * width, width, 0.0f);
  return numbers;
}

}  // namespace mudd::test
