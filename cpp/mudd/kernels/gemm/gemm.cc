#include "mudd/kernels/gemm/gemm.h"

#include <algorithm>

#include "mudd/base/parallel.h"
#include "mudd/base/rounding.h"
#include "mudd/kernels/gemm/gemm_tasks.h"
#include "mudd/kernels/gemm/gradient_tasks.h"
#include "mudd/kernels/gemm/grid.h"

namespace mudd {

std::span<const KernelRow<GemmKernels>> gemm_rows(DType compute) {
  static const KernelRow<GemmKernels> f32[] = {
      MUDD_KERNEL_ROWS(gemm_f32),
  };
  static const KernelRow<GemmKernels> b16[] = {
      MUDD_UNIT_KERNEL_ROWS(gemm_bf16),
      MUDD_KERNEL_ROWS(gemm_bf16),
  };
  check(compute == DType::f32 || compute == DType::bf16, "gemm", "compute: expected float32 or bfloat16, got ",
        name_of(compute));
  if (compute == DType::bf16) return b16;
  return f32;
}

const GemmKernels& gemm_kernels(DType compute) {
  static const GemmKernels &f32 = choose(gemm_rows(DType::f32)), &b16 = choose(gemm_rows(DType::bf16));
  return compute == DType::bf16 ? b16 : f32;
}

int64_t packed_bytes(int64_t k, int64_t n, DType compute) {
  const GemmKernels& kernels = gemm_kernels(compute);
  return kernels.panel_bytes(k, round_up(n, kernels.nr));
}

void multiply(const GemmBlock& whole) {
  GemmTasks gemm(whole);
  const int64_t packs = gemm.packs();
  parallel_for(packs + gemm.count(), [&](int64_t task, int) {
    if (task < packs) gemm.pack(task);
    else gemm.run(task - packs);
  });
}

int64_t grad_scratch_bytes(int64_t m, int64_t n, int shards, int gemms, DType compute) {
  const GemmKernels& kernels = gemm_kernels(compute);
  const Grid grid = gradient_grid(kernels, m, n, ceil_div(num_threads(), gemms));
  const int64_t slots = std::clamp<int64_t>(grid.tasks() * gemms, 1, num_threads());
  return slots * slot_floats(kernels, grid, shards) * static_cast<int64_t>(sizeof(float));
}

namespace {

// Return true if two gradients have the same output: an op got the same value twice, and the second gradient adds
// to the first.
bool any_meet(std::span<const GradBlock> wholes) {
  for (auto w = wholes.begin(); w != wholes.end(); ++w)
    for (auto before = wholes.begin(); before != w; ++before)
      if (before->out == w->out) return true;
  return false;
}

}  // namespace

void weight_gradient(const GradBlock& whole) { weight_gradients({&whole, 1}); }

void weight_gradients(std::span<const GradBlock> wholes) {
  if (any_meet(wholes)) {
    for (const GradBlock& w : wholes) weight_gradient(w);
    return;
  }
  GradientTasks gradients(wholes);
  parallel_for(gradients.workers(), [&](int64_t worker, int) { gradients.run(worker); });
}

void multiply_beside(const GemmBlock& whole, const GradBlock& gradient) {
  const void* const end = gradient.out + gradient.m * gradient.ldo;
  if (whole.c.data >= gradient.out && whole.c.data < end) {
    multiply(whole);
    return weight_gradient(gradient);
  }
  GemmTasks gemm(whole);
  GradientTasks gradients({&gradient, 1});
  const int64_t packs = gemm.packs(), workers = gradients.workers();
  parallel_for(packs + workers + gemm.count(), [&](int64_t task, int) {
    if (task < packs) gemm.pack(task);
    else if (task < packs + workers) gradients.run(task - packs);
    else gemm.run(task - packs - workers);
  });
}

}  // namespace mudd
