// row_adagrad: Adagrad with one sum for each row of a table (Duchi et al. 2011; docs/maths/optimizers.md, 6.3).
// Only rows with a gradient change, so the time of an update does not depend on the number of rows.
//
// Update n of row r [D], whose last update was t (0: none), with the summed gradient g times grad_scale:
//   s = s + (g_0^2 + g_1^2 + ...) / D.
//   w = (1 - decay)^(n - t) w - lr / (sqrt(s) + eps) g.
//   t = n.
// Squares, sums and both factors are computed in double and rounded to fp32.
#include <algorithm>
#include <atomic>
#include <numeric>

#include "mudd/base/check.h"
#include "mudd/base/math.h"
#include "mudd/base/row_lists.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/optim/update.h"

namespace mudd {
namespace {

constexpr int64_t kMaxUpdates = 1 << 24;  // fp32 holds all integers below it

class RowAdagrad final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  bool update(std::span<UpdateParameter> parameters, int64_t n, double grad_scale, std::byte*) const override {
    check(n < kMaxUpdates, "row_adagrad", "n: expected fewer than ", kMaxUpdates, " updates, got ", n);
    const Step step{.n = n, .scale = static_cast<float>(grad_scale)};
    bool finite = true;
    for (const UpdateParameter& p : parameters) {
      check(p.n_grads >= 1 && p.n_grads <= kMaxGradientUses, "row_adagrad", "n_grads: expected 1 to ",
            kMaxGradientUses, ", got ", p.n_grads);
      const std::span<const RowTotal* const> totals{p.grad_rows, static_cast<size_t>(p.n_grads)};
      // The panels of packed copies have many rows, so they are updated block by block.
      const bool by_list = RowLists::are_complete(totals) && !is_packed(p);
      finite &= by_list ? update_listed(p, RowLists(totals), step) : update_all(p, step);
    }
    return finite;
  }

 private:
  struct Step {
    int64_t n;
    float scale;
  };

  static bool is_packed(const UpdateParameter& p) { return p.packed_plain || p.packed_transposed; }

  static bool update_listed(const UpdateParameter& p, const RowLists& lists, const Step& step) {
    constexpr int64_t kEntries = 64;
    const int64_t first = p.grad_begin / p.cols;
    std::atomic<bool> finite{true};
    parallel_for((lists.entries() + kEntries - 1) / kEntries, [&](int64_t task, int) {
      const int64_t end = std::min(lists.entries(), (task + 1) * kEntries);
      for (int64_t entry = task * kEntries; entry < end; ++entry) {
        const int64_t row = lists.row(entry) - first;
        if (row >= 0 && row < p.rows && !update_row(p, row, step).finite)
          finite.store(false, std::memory_order_relaxed);
      }
    });
    return finite.load();
  }

  static bool update_all(const UpdateParameter& p, const Step& step) {
    const GemmKernels& gemm = gemm_kernels(p.packed);
    const int64_t unit = std::lcm<int64_t>(gemm.nr, gemm.depth_unit);
    const int64_t block = unit * std::max<int64_t>(1, 128 / unit);
    std::atomic<bool> finite{true};
    parallel_for((p.rows + block - 1) / block, [&](int64_t task, int) {
      const int64_t begin = task * block, end = std::min(p.rows, begin + block);
      bool changed = false;
      for (int64_t row = begin; row < end; ++row) {
        const Done done = update_row(p, row, step);
        changed |= done.changed;
        if (!done.finite) finite.store(false, std::memory_order_relaxed);
      }
      if (changed) repack(p, begin, end, 0, p.cols);
    });
    return finite.load();
  }

  struct Done {
    bool changed, finite;
  };

  // Call body(column, g, columns) for pieces of the summed gradient of a row.
  template <class Body>
  static void over_pieces(const UpdateParameter& p, int64_t row, float scale, Body body) {
    for (int64_t c = 0; c < p.cols; c += kCopied) {
      const int64_t n = std::min(kCopied, p.cols - c);
      GradientPiece piece(p, row * p.cols + c, n);
      float* g = piece.copies[0];
      for (int64_t k = 0; k < n; ++k) {
        float sum = piece.planes[0][k];
        for (int use = 1; use < p.n_grads; ++use) sum += piece.planes[use][k];
        g[k] = sum * scale;
      }
      body(c, g, n);
    }
  }

  static Done update_row(const UpdateParameter& p, int64_t row, const Step& step) {
    double squares = 0;
    over_pieces(p, row, step.scale, [&](int64_t, const float* g, int64_t n) {
      for (int64_t k = 0; k < n; ++k) squares += static_cast<double>(g[k]) * g[k];
    });
    if (squares == 0) return {.changed = false, .finite = true};
    float &sum = p.row_moment[row], &last = p.row_update[row];
    sum = static_cast<float>(sum + squares / static_cast<double>(p.cols));
    const auto kept = static_cast<float>(math::pow(1 - p.decay, static_cast<double>(step.n) - last));
    const auto rate = static_cast<float>(p.lr / (math::sqrt(sum) + p.eps));
    float zeros = 0 * sum;
    over_pieces(p, row, step.scale, [&](int64_t c, const float* g, int64_t n) {
      float* w = p.w + row * p.cols + c;
      for (int64_t k = 0; k < n; ++k) {
        w[k] = kept * w[k] - rate * g[k];
        zeros += 0 * w[k];
      }
    });
    last = static_cast<float>(step.n);
    return {.changed = true, .finite = zeros == 0};
  }
};

}  // namespace

const OptimizerSpec& row_adagrad_spec() {
  static const OptimizerSpec spec{.name = "row_adagrad",
                                  .help = "Adagrad with one number for each row of embeddings, adamw for all else",
                                  .moments = 0,
                                  .by_rows = true,
                                  .takes = {Role::embedding, Role::rows},
                                  .by_default = {Role::embedding, Role::rows},
                                  .rest = "adamw",
                                  .make = make<RowAdagrad>,
                                  .kernels = [] { return std::vector{chosen(gemm_rows())}; }};
  return spec;
}

}  // namespace mudd
