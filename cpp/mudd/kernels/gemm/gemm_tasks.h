// A whole GEMM as tasks of a parallel region. Private to this folder.
#pragma once

#include "mudd/base/parallel.h"
#include "mudd/kernels/gemm/grid.h"
#include "mudd/kernels/gemm/pack_tasks.h"

namespace mudd {

// Offset the operands of a GEMM to a row and a column, which is the first of a panel; b is packed already.
inline void move_to(GemmBlock* block, const GemmKernels& kernels, int64_t row, int64_t column) {
  if (block->a_rows) block->a_rows += row;
  else block->a += row * block->lda;
  block->b = static_cast<const char*>(block->b) + kernels.panel_bytes(block->k, column);
  block->c += row * block->ldc + column;
  Epilogue& e = block->epilogue;
  if (e.bias) e.bias += column;
  if (e.pre_activation) e.pre_activation += row * e.pre_stride + column;
  if (e.residual) e.residual += row * e.residual_stride + column;
  if (e.gate) e.gate += row * e.gate_stride + column;
  if (e.row_scale) e.row_scale += row;
}

// Return the block of a whole GEMM for a task of the grid.
inline GemmBlock block_of(const GemmBlock& whole, const GemmKernels& kernels, const Grid& grid, int64_t task) {
  const int64_t row = grid.row(task), column = grid.column(task);
  GemmBlock block = whole;
  block.m = grid.rows(task);
  block.n = grid.columns(task);
  if (whole.pack.w) block.b = whole.pack.to;
  move_to(&block, kernels, row, column);
  // tasks are assigned round-robin
  const int64_t turn = num_threads() * grid.step_m, next = row + turn;  // tasks are dealt in turn
  block.fetch_b = row < turn || kernels.panel_bytes(whole.k, block.n) > kStaysInL2;
  if (!whole.a_rows && next + block.m <= whole.m) block.next_a = whole.a + next * whole.lda;
  return block;
}

// The tasks that pack B and then the tasks of a whole GEMM. Tasks that multiply wait until packing is done:
// this takes less time than a second parallel region.
class GemmTasks {
 public:
  explicit GemmTasks(const GemmBlock& whole)
      : whole_(whole),
        kernels_(gemm_kernels(whole.compute)),
        grid_(gemm_grid(kernels_, whole.m, whole.n, whole.k)),
        pack_({&whole.pack, 1}, whole.compute) {}

  int64_t packs() const { return pack_.count(); }
  int64_t count() const { return grid_.tasks(); }

  void pack(int64_t task) { pack_.run(task); }

  void run(int64_t task) const {
    pack_.wait();
    kernels_.multiply(block_of(whole_, kernels_, grid_, task));
  }

 private:
  const GemmBlock& whole_;
  const GemmKernels& kernels_;
  Grid grid_;
  PackTasks pack_;
};

}  // namespace mudd
