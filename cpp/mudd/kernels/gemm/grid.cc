#include "mudd/kernels/gemm/grid.h"

#include <algorithm>

#include "mudd/base/parallel.h"

namespace mudd {

namespace {

// A grid for few rows: all columns if their B stays in L2.
Grid rows_first(const GemmKernels& kernels, int64_t m, int64_t n, int64_t k) {
  const int64_t enough = 8 * num_threads(), least = 8 * kernels.nr;
  const int64_t columns = kernels.kept_b / std::max<int64_t>(1, kernels.panel_bytes(k, 1));
  Grid grid{m, n, 2 * kernels.mr, std::max(columns / kernels.nr * kernels.nr, least)};
  if (grid.tasks() < enough) grid.step_m = kernels.mr;
  while (grid.tasks() < enough && grid.step_n > least)
    grid.step_n = std::max(round_up(std::min(n, grid.step_n) / 2, kernels.nr), least);
  const int64_t rows = std::max<int64_t>(1, std::min(m, grid.step_m));
  grid.step_n = std::max(grid.step_n, round_up(kSmallTask / std::max<int64_t>(1, rows * k), kernels.nr));
  return grid;
}

}  // namespace

Grid gemm_grid(const GemmKernels& kernels, int64_t m, int64_t n, int64_t k) {
  if (kernels.kept_b) return rows_first(kernels, m, n, k);
  // Multiples of every mr (2, 6, 12) and nr (16, 32), with enough tasks to balance 2 to 16 threads.
  Grid grid{m, n, 96, 256};
  // bf16 instructions are twice as fast, and every task copies its rows of A again: use the fewest tasks that
  // keep all threads busy. The same for tiles of 32 columns if B exceeds L2: small tasks would read it from L3
  // too often. The split of C never changes a sum.
  const bool few = kernels.packed == DType::bf16 ||
                   (kernels.nr == 32 && kernels.panel_bytes(k, std::min<int64_t>(n, grid.step_n)) > kStaysInL2);
  const int64_t enough = few ? 8 * num_threads() : 64;
  if (grid.tasks() < enough) grid.step_m = 48;
  if (grid.tasks() < enough) grid.step_n = 128;
  const int64_t rows = std::max<int64_t>(1, std::min(m, grid.step_m));
  grid.step_n = std::max(grid.step_n, round_up(kSmallTask / std::max<int64_t>(1, rows * k), 4 * kernels.nr));
  return grid;
}

Grid gradient_grid(const GemmKernels& kernels, int64_t m, int64_t n, int64_t threads) {
  const auto pieces = [](int64_t size, int64_t most) { return std::max<int64_t>(1, ceil_div(size, most)); };
  const auto piece = [](int64_t size, int64_t count, int64_t unit) {
    return round_up(std::max<int64_t>(1, ceil_div(size, count)), unit);
  };
  const int64_t least_m = pieces(m, kernels.grad_m), least_n = pieces(n, kernels.grad_n);
  Grid best{m, n, piece(m, least_m, kernels.mr), piece(n, least_n, kernels.nr)};
  int64_t best_cost = INT64_MAX;
  for (int64_t a = least_m; a <= least_m + threads; ++a)
    for (int64_t b = least_n; b <= least_n + threads; ++b) {
      const Grid grid{m, n, piece(m, a, kernels.mr), piece(n, b, kernels.nr)};
      const int64_t one = grid.step_m * grid.step_n + kernels.pack_x * grid.step_m + kernels.pack_dy * grid.step_n;
      const int64_t cost = ceil_div(grid.tasks(), threads) * one;
      if (cost >= best_cost) continue;
      best = grid;
      best_cost = cost;
    }
  return best;
}

int64_t slot_floats(const GemmKernels& kernels, const Grid& grid, int shards) {
  return round_up(kernels.grad_scratch(std::min(grid.m, grid.step_m), std::min(grid.n, grid.step_n), shards), 16);
}

}  // namespace mudd
