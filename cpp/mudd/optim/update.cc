#include "mudd/optim/update.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/kernels/gemm/pack_block.h"

namespace mudd {
namespace {

// The tasks of a parameter: blocks of rows x columns. Packed ones are split at multiples of the panel width in
// both directions, so that a block fills whole pieces of panels while its new weights are in cache (128 KiB);
// other parameters are one long row.
struct Cut {
  int64_t rows, cols, block_rows, block_cols, down, across;

  explicit Cut(const UpdateParameter& p) {
    const GemmKernels& gemm = gemm_kernels(p.packed);
    // Also whole units of depth: a panel may interleave several rows of k.
    const int64_t nr = std::lcm<int64_t>(gemm.nr, gemm.depth_unit);
    const bool packed = p.packed_plain || p.packed_transposed;
    rows = packed ? p.rows : 1;
    cols = packed ? p.cols : p.rows * p.cols;
    block_rows = packed ? nr * std::max<int64_t>(1, 32 / nr) : 1;
    block_cols = packed ? nr * std::max<int64_t>(1, 1024 / nr) : 16384;
    down = (rows + block_rows - 1) / block_rows;
    across = (cols + block_cols - 1) / block_cols;
  }
  int64_t tasks() const { return down * across; }
};

constexpr int64_t kCopied = 4096;  // elements at a time of a gradient with a row list

// The types of the moments.
struct StateTypes {
  DType first, second;
};

// Update elements [at, at + n), n at most kCopied for a gradient with a row list. Return true if all are
// finite.
bool update_piece(const UpdateKernels& kernels, StateTypes types, const UpdateParameter& p, int64_t at,
                  int64_t n) {
  const float* grads[kMaxGradientUses] = {};
  float copies[kMaxGradientUses][kCopied];
  for (int i = 0; i < p.n_grads; ++i) {
    if (p.grad_rows[i]) p.grad_rows[i]->copy(p.grad_begin + at, n, copies[i]);
    grads[i] = p.grad_rows[i] ? copies[i] : p.grads[i] + at;
  }
  const bool narrow = types.first == DType::bf16;
  float *w = p.w + at, *m = static_cast<float*>(p.m) + (narrow ? 0 : at);
  bf16* m16 = static_cast<bf16*>(p.m) + (narrow ? at : 0);
  if (p.v && types.second == DType::bf16) {
    bf16* v = static_cast<bf16*>(p.v) + at;
    if (narrow) return kernels.update_both(n, w, m16, v, grads, p.n_grads, p.factors);
    return kernels.update_second(n, w, m, v, grads, p.n_grads, p.factors);
  }
  float* v = p.v ? static_cast<float*>(p.v) + at : nullptr;
  if (narrow) return kernels.update_bf16(n, w, m16, v, grads, p.n_grads, p.factors);
  return kernels.update(n, w, m, v, grads, p.n_grads, p.factors);
}

bool run_task(const UpdateKernels& kernels, StateTypes types, const UpdateParameter& p, const Cut& cut,
              int64_t task) {
  const int64_t r = task / cut.across * cut.block_rows, c = task % cut.across * cut.block_cols;
  const int64_t r_end = std::min(r + cut.block_rows, cut.rows), c_end = std::min(c + cut.block_cols, cut.cols);
  const bool by_rows = std::any_of(p.grad_rows, p.grad_rows + p.n_grads, [](const auto* rows) { return rows; });
  const int64_t step = by_rows ? kCopied : c_end - c;
  bool finite = true;
  for (int64_t row = r; row < r_end; ++row)
    for (int64_t column = c; column < c_end; column += step)
      finite &= update_piece(kernels, types, p, row * cut.cols + column, std::min(step, c_end - column));
  repack(p, r, r_end, c, c_end);
  return finite;
}

}  // namespace

void repack(const UpdateParameter& p, int64_t r, int64_t r_end, int64_t c, int64_t c_end) {
  const PackedMatrix whole{.w = p.w - p.first_row * p.cols,
                           .rows = p.matrix_rows > 0 ? p.matrix_rows : p.rows,
                           .cols = p.cols,
                           .plain = p.packed_plain,
                           .transposed = p.packed_transposed,
                           .compute = p.packed};
  pack_block(whole, p.first_row + r, p.first_row + r_end, c, c_end);
}

bool Elementwise::update(std::span<UpdateParameter> parameters, int64_t n, double grad_scale, std::byte*) const {
  int64_t tasks = 0;
  for (UpdateParameter& p : parameters) {
    check(p.n_grads >= 1 && p.n_grads <= kMaxGradientUses, "optimizer", "n_grads: expected 1 to ",
          kMaxGradientUses, ", got ", p.n_grads);
    p.first_task = tasks;
    p.factors = factors(p, n, grad_scale);
    tasks += Cut(p).tasks();
  }
  std::atomic<bool> finite{true};
  parallel_for(tasks, [&](int64_t task, int) {
    const auto after = std::upper_bound(parameters.begin(), parameters.end(), task,
                                        [](int64_t t, const UpdateParameter& p) { return t < p.first_task; });
    const UpdateParameter& p = *(after - 1);  // an empty parameter has no task and shares first_task with the next
    if (!run_task(kernels_, {moment(), second()}, p, Cut(p), task - p.first_task))
      finite.store(false, std::memory_order_relaxed);
  });
  return finite.load();
}

}  // namespace mudd
