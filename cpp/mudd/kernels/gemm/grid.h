// How the threaded drivers cut C and dW into tasks. Private to this folder.
#pragma once

#include <algorithm>

#include "mudd/base/rounding.h"
#include "mudd/kernels/gemm/gemm.h"

namespace mudd {

// A grid of tasks over C [m, n], row blocks fastest: threads that follow each other share columns of B.
struct Grid {
  int64_t m, n, step_m, step_n;

  int64_t tasks() const { return m == 0 || n == 0 ? 0 : ceil_div(m, step_m) * ceil_div(n, step_n); }
  int64_t row(int64_t task) const { return task % ceil_div(m, step_m) * step_m; }
  int64_t column(int64_t task) const { return task / ceil_div(m, step_m) * step_n; }
  int64_t rows(int64_t task) const { return std::min(step_m, m - row(task)); }
  int64_t columns(int64_t task) const { return std::min(step_n, n - column(task)); }
};

// Multiply-adds below which a task is not worth handing to another thread.
constexpr int64_t kSmallTask = 1 << 16;

// Tasks of C [m, n] = A [m, k] B.
Grid gemm_grid(const GemmKernels& kernels, int64_t m, int64_t n, int64_t k);

// Blocks of dW [m, n] for threads: equal pieces of at most the kernel's own size, so many that `threads` end
// together at the least cost. How dW is cut never enters a sum, so it may follow the number of threads.
Grid gradient_grid(const GemmKernels& kernels, int64_t m, int64_t n, int64_t threads);

// Floats of scratch for one worker on blocks of such a grid.
int64_t slot_floats(const GemmKernels& kernels, const Grid& grid, int shards);

}  // namespace mudd
