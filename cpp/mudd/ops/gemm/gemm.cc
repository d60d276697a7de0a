#include "mudd/ops/gemm/gemm.h"

#include <algorithm>

#include "mudd/base/parallel.h"

namespace mudd {

std::span<const KernelRow<GemmKernels>> gemm_rows() {
  static const KernelRow<GemmKernels> rows[] = {
#define MUDD_KERNEL(name, level) {#name, #level, &level::name},
#include "mudd/ops/gemm/kernels.inc"
#undef MUDD_KERNEL
  };
  return rows;
}

const GemmKernels& gemm_kernels() {
  static const GemmKernels& best = choose(gemm_rows());
  return best;
}

namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t to) { return ceil_div(a, to) * to; }

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

Grid product_grid(const GemmKernels& kernels, int64_t m, int64_t n, int64_t k) {
  // Multiples of every mr (2, 6, 12) and nr (16, 32); many enough that 2 to 16 threads end together.
  Grid grid{m, n, 96, 256};
  constexpr int64_t kEnough = 64;
  if (grid.tasks() < kEnough) grid.step_m = 48;
  if (grid.tasks() < kEnough) grid.step_n = 128;
  const int64_t rows = std::max<int64_t>(1, std::min(m, grid.step_m));
  grid.step_n = std::max(grid.step_n, round_up(kSmallTask / std::max<int64_t>(1, rows * k), 4 * kernels.nr));
  return grid;
}

}  // namespace

int64_t packed_size(int64_t k, int64_t n) { return round_up(n, gemm_kernels().nr) * k; }

void pack_weight(const float* w, int64_t rows, int64_t cols, bool transposed, float* packed) {
  const GemmKernels& kernels = gemm_kernels();
  const int64_t k = transposed ? cols : rows, n = transposed ? rows : cols;
  const int64_t panels = ceil_div(n, kernels.nr);
  const int64_t step = std::clamp<int64_t>(kSmallTask / std::max<int64_t>(1, k * kernels.nr), 1, 16);
  parallel_for(ceil_div(panels, step), [&](int64_t task, int) {
    const int64_t begin = task * step, end = std::min(begin + step, panels);
    (transposed ? kernels.pack_transposed : kernels.pack)(w, cols, k, n, begin, end, packed);
  });
}

void multiply(const GemmBlock& whole) {
  const GemmKernels& kernels = gemm_kernels();
  const Grid grid = product_grid(kernels, whole.m, whole.n, whole.k);
  parallel_for(grid.tasks(), [&](int64_t task, int) {
    const int64_t row = grid.row(task), column = grid.column(task);
    GemmBlock block = whole;
    block.m = grid.rows(task);
    block.n = grid.columns(task);
    block.a += row * whole.lda;
    block.b += column * whole.k;
    block.c += row * whole.ldc + column;
    Epilogue& e = block.epilogue;
    if (e.bias) e.bias += column;
    if (e.pre_activation) e.pre_activation += row * e.pre_stride + column;
    if (e.residual) e.residual += row * e.residual_stride + column;
    kernels.multiply(block);
  });
}

int64_t grad_scratch_bytes(int64_t m, int64_t n, int64_t rows) {
  return gemm_kernels().grad_scratch(m, n, rows) * static_cast<int64_t>(sizeof(float));
}

void weight_gradient(const GradBlock& whole) {
  check(whole.shards >= 1 && whole.shards <= kMaxShards, "gemm", "shards: expected 1 to ", kMaxShards, ", got ",
        whole.shards);
  check(!whole.start || whole.shards == 1, "gemm", "start: expected one shard, got ", whole.shards);
  check(whole.n_add <= kMaxAdds, "gemm", "adds: expected at most ", kMaxAdds, ", got ", whole.n_add);
  const GemmKernels& kernels = gemm_kernels();
  const int64_t rows = whole.cuts[whole.shards];
  const int64_t tile_floats = kernels.left_tile(rows), tiles = ceil_div(whole.m, kernels.mr);
  const int64_t panels = ceil_div(whole.n, kernels.nr);
  float *left = whole.scratch, *right = left + tiles * tile_floats;

  // Both operands are packed once for all threads.
  const int64_t tile_step = 64 / kernels.mr, panel_step = 64 / kernels.nr;
  const int64_t tile_tasks = ceil_div(tiles, tile_step);
  parallel_for(tile_tasks + ceil_div(panels, panel_step), [&](int64_t task, int) {
    if (task < tile_tasks) {
      const int64_t begin = task * tile_step;
      kernels.pack_left(whole.x, whole.ldx, rows, whole.m, begin, std::min(begin + tile_step, tiles), left);
    } else {
      const int64_t begin = (task - tile_tasks) * panel_step;
      kernels.pack(whole.dy, whole.ldy, rows, whole.n, begin, std::min(begin + panel_step, panels), right);
    }
  });

  const Grid grid{whole.m, whole.n, 48, 128};
  parallel_for(grid.tasks(), [&](int64_t task, int) {
    const int64_t row = grid.row(task), column = grid.column(task), at = row * whole.ldo + column;
    GradBlock block = whole;
    block.m = grid.rows(task);
    block.n = grid.columns(task);
    block.out += at;
    if (block.start) block.start += at;
    const float* add[kMaxAdds];
    for (int i = 0; i < whole.n_add; ++i) add[i] = whole.add[i] + at;
    block.add = add;
    kernels.packed_gradient(block, {left + row / kernels.mr * tile_floats, right + column * rows});
  });
}

}  // namespace mudd
