// The sums that the contract of gemm promises, written out, and matrices with gaps between their rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gemm_operands.h"

namespace mudd::test {

// c = a b as one chain per element from `start` (contiguous operands).
inline Floats chain(int64_t m, int64_t n, int64_t k, const Floats& a, const Floats& b, Floats start) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t l = 0; l < k; ++l) start[i * n + j] = std::fma(a[i * k + l], b[l * n + j], start[i * n + j]);
  return start;
}

// The sums that the contract promises: a chain per shard, a balanced tree, then the adds.
inline Floats gradient_chain(const std::vector<int64_t>& cuts, int64_t m, int64_t n, const Floats& x,
                             const Floats& dy, const std::vector<Floats>& adds) {
  std::vector<Floats> parts;
  for (size_t s = 0; s + 1 < cuts.size(); ++s) {
    Floats sum(static_cast<size_t>(m * n));
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        for (int64_t r = cuts[s]; r < cuts[s + 1]; ++r)
          sum[i * n + j] = std::fma(x[r * m + i], dy[r * n + j], sum[i * n + j]);
    parts.push_back(sum);
  }
  for (size_t distance = 1; distance < parts.size(); distance *= 2)
    for (size_t s = 0; s + distance < parts.size(); s += 2 * distance)
      for (size_t i = 0; i < parts[s].size(); ++i) parts[s][i] += parts[s + distance][i];
  for (const Floats& add : adds)
    for (size_t i = 0; i < add.size(); ++i) parts[0][i] = add[i] + parts[0][i];
  return parts[0];
}

// Rows `stride` apart, the gaps filled with nan so that reading them shows.
inline Floats spread(const Floats& x, int64_t rows, int64_t cols, int64_t stride) {
  Floats s(static_cast<size_t>(rows * stride), std::numeric_limits<float>::quiet_NaN());
  for (int64_t i = 0; i < rows; ++i) std::copy_n(x.begin() + i * cols, cols, s.begin() + i * stride);
  return s;
}

inline Floats gather(const Floats& s, int64_t rows, int64_t cols, int64_t stride) {
  Floats x;
  for (int64_t i = 0; i < rows; ++i) x.insert(x.end(), s.begin() + i * stride, s.begin() + i * stride + cols);
  return x;
}

}  // namespace mudd::test
