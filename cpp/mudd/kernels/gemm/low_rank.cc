#include "mudd/kernels/gemm/low_rank.h"

#include <algorithm>
#include <array>

#include "mudd/base/parallel.h"
#include "mudd/kernels/convert/wide_rows.h"
#include "mudd/kernels/gemm/gemm_tasks.h"
#include "mudd/kernels/gemm/gradient_tasks.h"

namespace mudd {
namespace {

// The tasks of u = scale (x A); readers of u wait for the last one.
class DownTasks {
 public:
  explicit DownTasks(const LowRankGemm& all)
      : whole_(all.down),
        scale_(all.scale),
        kernels_(gemm_kernels(whole_.compute)),
        grid_(gemm_grid(kernels_, whole_.m, whole_.n, whole_.k)) {
    left_.begin(grid_.tasks());
  }

  int64_t count() const { return grid_.tasks(); }

  void run(int64_t task) {
    const GemmBlock block = block_of(whole_, kernels_, grid_, task);
    kernels_.multiply(block);
    for (int64_t r = 0; r < block.m; ++r) {
      float* row = block.c.f32() + r * block.ldc;
      for (int64_t j = 0; j < block.n; ++j) row[j] *= scale_;
    }
    left_.done();
  }

  void wait() const { left_.wait(); }

 private:
  const GemmBlock& whole_;
  const float scale_;
  const GemmKernels& kernels_;
  const Grid grid_;
  TasksLeft left_;
};

bool meets(const GemmBlock& full, const GradBlock& gradient) {
  const void* const end = gradient.out + gradient.m * gradient.ldo;
  return full.m > 0 && full.c.data >= gradient.out && full.c.data < end;
}

bool any_meet(const LowRankGemm& all) {
  for (auto one = all.gradients.begin(); one != all.gradients.end(); ++one) {
    if (meets(all.full, *one)) return true;
    for (auto before = all.gradients.begin(); before != one; ++before)
      if (before->out == one->out) return true;
  }
  return false;
}

// Columns in a slice of c, fewer in fp32: the scratch of a slice and the panels of W must fit into L2.
int64_t slice_of(const GemmKernels& kernels) { return kernels.packed == DType::bf16 ? 256 : 128; }

}  // namespace

void multiply_from_low_rank(const GemmBlock& up, const GemmBlock& full) {
  const GemmKernels& kernels = gemm_kernels(full.compute);
  const int64_t slice = slice_of(kernels);
  const WorkerFloats low(full.m * slice);  // u B of a slice
  for (int64_t column = 0; column < full.n; column += slice) {
    GemmBlock first = up, second = full;
    move_to(&first, kernels, 0, column);
    move_to(&second, kernels, 0, column);
    second.n = std::min(slice, full.n - column);
    first.n = round_up(second.n, kernels.nr);  // the padding of a panel is zeros
    first.c = low.data();
    first.ldc = second.start_stride = slice;
    second.start = low.data();
    kernels.multiply(first);
    kernels.multiply(second);
  }
}

void multiply_low_rank(const LowRankGemm& all) {
  if (any_meet(all)) {
    LowRankGemm alone = all;
    alone.gradients = {};
    multiply_low_rank(alone);
    return weight_gradients(all.gradients);
  }
  const GemmKernels& kernels = gemm_kernels(all.down.compute);
  const std::array<Unpacked, 3> matrices{all.down.pack, all.full.m ? all.up.pack : Unpacked{},
                                         all.full.m ? all.full.pack : Unpacked{}};
  const Grid grid = gemm_grid(kernels, all.full.m, all.full.n, all.full.k);
  PackTasks pack(matrices, all.down.compute);
  DownTasks down(all);
  GradientTasks gradients(all.gradients);
  const int64_t packs = pack.count(), downs = packs + down.count(), sums = downs + gradients.workers();
  parallel_for(sums + grid.tasks(), [&](int64_t task, int) {
    if (task < packs) return pack.run(task);
    pack.wait();
    if (task < downs) return down.run(task - packs);
    down.wait();
    if (task < sums) return gradients.run(task - downs);
    const int64_t block = task - sums;
    multiply_from_low_rank(block_of(all.up, kernels, grid, block), block_of(all.full, kernels, grid, block));
  });
}

}  // namespace mudd
