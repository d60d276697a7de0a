#include "mudd/optim/update.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "mudd/base/check.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/kernels/gemm/pack_block.h"

namespace mudd {
namespace {

// The tasks of a parameter: blocks of rows x columns. Packed ones are split at multiples of the panel width in
// both directions, so that a block fills whole pieces of panels while its new weights are in cache (128 KiB).
// Those with a moment for each row keep their rows; other parameters are one long row.
struct Cut {
  int64_t rows, cols, block_rows, block_cols, down, across;

  explicit Cut(const UpdateParameter& p) {
    const GemmKernels& gemm = gemm_kernels(p.packed);
    // Also whole units of depth: a panel may interleave several rows of k.
    const int64_t nr = std::lcm<int64_t>(gemm.nr, gemm.depth_unit);
    const bool blocks = p.packed_plain || p.packed_transposed || p.row_moment;
    rows = blocks ? p.rows : 1;
    cols = blocks ? p.cols : p.rows * p.cols;
    block_rows = blocks ? nr * std::max<int64_t>(1, 32 / nr) : 1;
    block_cols = blocks ? nr * std::max<int64_t>(1, 1024 / nr) : 16384;
    down = (rows + block_rows - 1) / block_rows;
    across = (cols + block_cols - 1) / block_cols;
  }
  int64_t tasks() const { return down * across; }
};

// The types of the moments.
struct StateTypes {
  DType first, second;
};

// Write v of elements [at, at + n) of a row (factors.h) to `to`.
void multiply_factors(const UpdateParameter& p, int64_t at, int64_t n, float* to) {
  const auto of_row = static_cast<float>(p.row_moment[at / p.cols] * p.per_row_mean);
  const float* columns = p.column_moment + at % p.cols;
  for (int64_t k = 0; k < n; ++k) to[k] = of_row * columns[k];
}

// Update elements [at, at + n): at most kCopied of one row for a gradient with a row list or a factored moment.
// Return true if all are finite.
bool update_piece(const UpdateKernels& kernels, StateTypes types, const UpdateParameter& p, int64_t at,
                  int64_t n) {
  const GradientPiece gradient(p, at, n);
  const float* const* grads = gradient.planes;
  const bool narrow = types.first == DType::bf16;
  float *w = p.w + at, *m = static_cast<float*>(p.m) + (narrow ? 0 : at);
  bf16* m16 = static_cast<bf16*>(p.m) + (narrow ? at : 0);
  if (p.v && types.second == DType::bf16) {
    bf16* v = static_cast<bf16*>(p.v) + at;
    if (narrow) return kernels.update_both(n, w, m16, v, grads, p.n_grads, p.factors);
    return kernels.update_second(n, w, m, v, grads, p.n_grads, p.factors);
  }
  float* v = p.v ? static_cast<float*>(p.v) + at : nullptr;
  float product[kCopied];
  if (p.row_moment) {
    multiply_factors(p, at, n, product);
    v = product;
  }
  if (narrow) return kernels.update_bf16(n, w, m16, v, grads, p.n_grads, p.factors);
  return kernels.update(n, w, m, v, grads, p.n_grads, p.factors);
}

bool run_task(const UpdateKernels& kernels, StateTypes types, const UpdateParameter& p, const Cut& cut,
              int64_t task) {
  const int64_t r = task / cut.across * cut.block_rows, c = task % cut.across * cut.block_cols;
  const int64_t r_end = std::min(r + cut.block_rows, cut.rows), c_end = std::min(c + cut.block_cols, cut.cols);
  const bool by_rows = std::any_of(p.grad_rows, p.grad_rows + p.n_grads, [](const auto* rows) { return rows; });
  const int64_t step = by_rows || p.row_moment ? kCopied : c_end - c;
  bool finite = true;
  for (int64_t row = r; row < r_end; ++row)
    for (int64_t column = c; column < c_end; column += step)
      finite &= update_piece(kernels, types, p, row * cut.cols + column, std::min(step, c_end - column));
  repack(p, r, r_end, c, c_end);
  return finite;
}

}  // namespace

GradientPiece::GradientPiece(const UpdateParameter& p, int64_t at, int64_t n) {
  for (int i = 0; i < p.n_grads; ++i) {
    if (p.grad_rows[i]) p.grad_rows[i]->copy(p.grad_begin + at, n, copies[i]);
    planes[i] = p.grad_rows[i] ? copies[i] : p.grads[i] + at;
  }
}

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
  for (UpdateParameter& p : parameters) {
    check(p.n_grads >= 1 && p.n_grads <= kMaxGradientUses, "optimizer", "n_grads: expected 1 to ",
          kMaxGradientUses, ", got ", p.n_grads);
    p.factors = factors(p, n, grad_scale);
  }
  std::atomic<bool> finite{true};
  over_tasks(
      parameters, [](const UpdateParameter& p) { return Cut(p).tasks(); },
      [&](const UpdateParameter& p, int64_t task) {
        if (!run_task(kernels_, {moment(), second()}, p, Cut(p), task))
          finite.store(false, std::memory_order_relaxed);
      });
  return finite.load();
}

}  // namespace mudd
