#include "mudd/base/row_gradient.h"

#include <algorithm>
#include <cstring>

namespace mudd {

void RowGradient::copy(int64_t begin, int64_t n, float* to) const {
  for (const int64_t end = begin + n; begin < end;) {
    const int64_t row = begin / width, column = begin % width, count_here = std::min(width - column, end - begin);
    if (place[row] < 0) std::memset(to, 0, static_cast<size_t>(count_here) * sizeof(float));
    else std::memcpy(to, values + place[row] * width + column, static_cast<size_t>(count_here) * sizeof(float));
    begin += count_here;
    to += count_here;
  }
}

}  // namespace mudd
