#include "mudd/params/units.h"

#include <algorithm>
#include <numeric>

namespace mudd {

int64_t next_border(const Parameter& p, int64_t at, bool whole_matrices) {
  const int64_t size = p.size(), matrix = p.matrix_rows() * p.cols();
  if (p.shape.size() < 2) return std::min(size, (at / kUnitElements + 1) * kUnitElements);
  if (p.stack() > 1 && matrix % kUnitElements != 0) {  // the fewest matrices that have whole blocks together
    const int64_t group = matrix * (kUnitElements / std::gcd(kUnitElements, matrix));
    return std::min(size, (at / group + 1) * group);
  }
  const int64_t rows = std::lcm(kUnitRows, kUnitElements / std::gcd(kUnitElements, p.cols()));
  const int64_t unit = whole_matrices ? matrix : rows * p.cols(), begin = at / matrix * matrix;
  return std::min(begin + matrix, at + unit - (at - begin) % unit);
}

}  // namespace mudd
