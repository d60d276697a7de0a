// How the threaded drivers split C and dW into tasks. Private to this folder.
#pragma once

#include <algorithm>

#include "mudd/base/rounding.h"
#include "mudd/kernels/gemm/gemm.h"

namespace mudd {

// A grid of tasks over C [m, n], row blocks fastest: neighbouring threads share columns of B.
struct Grid {
  int64_t m, n, step_m, step_n;

  int64_t tasks() const { return m == 0 || n == 0 ? 0 : ceil_div(m, step_m) * ceil_div(n, step_n); }
  int64_t row(int64_t task) const { return task % ceil_div(m, step_m) * step_m; }
  int64_t column(int64_t task) const { return task / ceil_div(m, step_m) * step_n; }
  int64_t rows(int64_t task) const { return std::min(step_m, m - row(task)); }
  int64_t columns(int64_t task) const { return std::min(step_n, n - column(task)); }
};

// Multiply-adds below which a second thread does not pay.
constexpr int64_t kSmallTask = 1 << 16;

// Return the tasks of C [m, n] = A [m, k] B.
Grid gemm_grid(const GemmKernels& kernels, int64_t m, int64_t n, int64_t k);

// Split dW [m, n] into equal blocks of at most the kernel's size, balanced over `threads` at the least cost.
// The split never changes a sum, so it may depend on the thread count.
Grid gradient_grid(const GemmKernels& kernels, int64_t m, int64_t n, int64_t threads);

// Floats of scratch for one worker on blocks of such a grid.
int64_t slot_floats(const GemmKernels& kernels, const Grid& grid, int shards);

}  // namespace mudd
