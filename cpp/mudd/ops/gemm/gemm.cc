#include "mudd/ops/gemm/gemm.h"

#include <algorithm>
#include <atomic>

#include "mudd/base/parallel.h"
#include "mudd/base/rounding.h"

namespace mudd {

std::span<const KernelRow<GemmKernels>> gemm_rows(DType compute) {
#define MUDD_KERNEL(name, level) {#name, #level, &level::name},
  static const KernelRow<GemmKernels> f32[] = {
#include "mudd/ops/gemm/kernels.inc"
  };
  static const KernelRow<GemmKernels> b16[] = {
#include "mudd/ops/gemm/kernels_bf16.inc"
  };
#undef MUDD_KERNEL
  check(compute == DType::f32 || compute == DType::bf16, "gemm", "compute: expected float32 or bfloat16, got ",
        name_of(compute));
  if (compute == DType::bf16) return b16;
  return f32;
}

const GemmKernels& gemm_kernels(DType compute) {
  static const GemmKernels &f32 = choose(gemm_rows(DType::f32)), &b16 = choose(gemm_rows(DType::bf16));
  return compute == DType::bf16 ? b16 : f32;
}

namespace {

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
  // Units of bf16 are twice as fast, and where rows of A are copied every task does it again: as few tasks as keep
  // all busy. How C is cut never enters a sum.
  const int64_t enough = kernels.packed == DType::bf16 ? 8 * num_threads() : 64;
  if (grid.tasks() < enough) grid.step_m = 48;
  if (grid.tasks() < enough) grid.step_n = 128;
  const int64_t rows = std::max<int64_t>(1, std::min(m, grid.step_m));
  grid.step_n = std::max(grid.step_n, round_up(kSmallTask / std::max<int64_t>(1, rows * k), 4 * kernels.nr));
  return grid;
}

}  // namespace

int64_t packed_bytes(int64_t k, int64_t n, DType compute) {
  const GemmKernels& kernels = gemm_kernels(compute);
  return kernels.panel_bytes(k, round_up(n, kernels.nr));
}

int64_t packed_size(int64_t k, int64_t n) { return packed_bytes(k, n, DType::f32) / size_of(DType::f32); }

void pack_weight(const float* w, int64_t rows, int64_t cols, bool transposed, void* packed, DType compute) {
  const GemmKernels& kernels = gemm_kernels(compute);
  const int64_t k = transposed ? cols : rows, n = transposed ? rows : cols;
  const int64_t panels = ceil_div(n, kernels.nr);
  const int64_t step = std::clamp<int64_t>(kSmallTask / std::max<int64_t>(1, k * kernels.nr), 1, 16);
  parallel_for(ceil_div(panels, step), [&](int64_t task, int) {
    const int64_t begin = task * step, end = std::min(begin + step, panels);
    (transposed ? kernels.pack_transposed : kernels.pack)(w, cols, k, n, begin, end, packed);
  });
}

namespace {

// The tasks of a whole product.
class ProductTasks {
 public:
  explicit ProductTasks(const GemmBlock& whole)
      : whole_(whole),
        kernels_(gemm_kernels(whole.compute)),
        grid_(product_grid(kernels_, whole.m, whole.n, whole.k)) {}

  int64_t count() const { return grid_.tasks(); }

  void run(int64_t task) const {
    const int64_t row = grid_.row(task), column = grid_.column(task);
    GemmBlock block = whole_;
    block.m = grid_.rows(task);
    block.n = grid_.columns(task);
    if (whole_.a_rows) block.a_rows += row;
    else block.a += row * whole_.lda;
    block.b = static_cast<const char*>(whole_.b) + kernels_.panel_bytes(whole_.k, column);
    block.c += row * whole_.ldc + column;
    // The next tasks of these columns find B in L2, unless it fills that (1 MiB on most CPUs).
    const int64_t turn = num_threads() * grid_.step_m, next = row + turn;  // tasks are dealt in turn
    block.fetch_b = row < turn || kernels_.panel_bytes(whole_.k, block.n) > (768 << 10);
    if (!whole_.a_rows && next + block.m <= whole_.m) block.next_a = whole_.a + next * whole_.lda;
    Epilogue& e = block.epilogue;
    if (e.bias) e.bias += column;
    if (e.pre_activation) e.pre_activation += row * e.pre_stride + column;
    if (e.residual) e.residual += row * e.residual_stride + column;
    if (e.gate) e.gate += row * e.gate_stride + column;
    if (e.row_scale) e.row_scale += row;
    kernels_.multiply(block);
  }

 private:
  const GemmBlock& whole_;
  const GemmKernels& kernels_;
  Grid grid_;
};

}  // namespace

void multiply(const GemmBlock& whole) {
  const ProductTasks product(whole);
  parallel_for(product.count(), [&](int64_t task, int) { product.run(task); });
}

namespace {

// Blocks of dW [m, n] for threads: equal pieces of at most the kernel's own size, so many that `threads` end
// together at the least cost. How dW is cut never enters a sum, so it may follow the number of threads.
Grid gradient_grid(const GemmKernels& kernels, int64_t m, int64_t n, int64_t threads) {
  constexpr int64_t kPack = 16;  // multiply-adds in the time that packs an element
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
      const int64_t one = grid.step_m * grid.step_n + kPack * (grid.step_m + grid.step_n);
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

}  // namespace

int64_t grad_scratch_bytes(int64_t m, int64_t n, int shards, int products, DType compute) {
  const GemmKernels& kernels = gemm_kernels(compute);
  const Grid grid = gradient_grid(kernels, m, n, ceil_div(num_threads(), products));
  const int64_t slots = std::clamp<int64_t>(grid.tasks() * products, 1, num_threads());
  return slots * slot_floats(kernels, grid, shards) * static_cast<int64_t>(sizeof(float));
}

namespace {

void check_gradient(const GradBlock& whole) {
  check(whole.shards >= 1 && whole.shards <= kMaxShards, "gemm", "shards: expected 1 to ", kMaxShards, ", got ",
        whole.shards);
  check(!whole.start || whole.shards == 1, "gemm", "start: expected one shard, got ", whole.shards);
  check(whole.n_add <= kMaxAdds, "gemm", "adds: expected at most ", kMaxAdds, ", got ", whole.n_add);
}

// Block `task` of the grid over `whole`.
void gradient_task(const GradBlock& whole, const Grid& grid, int64_t task, float* scratch) {
  const int64_t row = grid.row(task), column = grid.column(task), at = row * whole.ldo + column;
  GradBlock block = whole;
  block.x += row;
  block.dy += column;
  block.m = grid.rows(task);
  block.n = grid.columns(task);
  block.out += at;
  if (block.start) block.start += at;
  const float* add[kMaxAdds];
  for (int i = 0; i < whole.n_add; ++i) add[i] = whole.add[i] + at;
  block.add = add;
  block.scratch = scratch;
  gemm_kernels(whole.compute).weight_gradient(block);
}

// Floats of scratch that a block of any of the products needs when each is cut into at least `enough`.
int64_t largest_slot(std::span<const GradBlock> wholes, int64_t enough) {
  const GemmKernels& kernels = gemm_kernels(wholes.front().compute);
  int64_t floats = 1;
  for (const GradBlock& w : wholes)
    floats = std::max(floats, slot_floats(kernels, gradient_grid(kernels, w.m, w.n, enough), w.shards));
  return floats;
}

// The blocks of whole gradients. Each slot of their scratch is one worker's, who takes blocks until none is left,
// however many threads there are by now.
class GradientTasks {
 public:
  explicit GradientTasks(std::span<const GradBlock> wholes) : wholes_(wholes) {
    if (wholes.empty()) return;
    for (const GradBlock& w : wholes) check_gradient(w);
    const GradBlock& first = wholes.front();
    const int64_t booked = first.scratch_bytes / static_cast<int64_t>(sizeof(float));
    // Booked for more threads than there are now: blocks must still fit into one slot.
    enough_ = ceil_div(num_threads(), static_cast<int64_t>(wholes.size()));
    while (largest_slot(wholes, enough_) > booked && enough_ < first.m * first.n) enough_ *= 2;
    slot_floats_ = largest_slot(wholes, enough_);
    check(booked >= slot_floats_, "gemm", "scratch: expected at least ", slot_floats_ * 4, " bytes, got ",
          first.scratch_bytes);
    for (const GradBlock& w : wholes) blocks_ += grid(w).tasks();
    workers_ = std::min(booked / slot_floats_, blocks_);
  }

  int64_t workers() const { return workers_; }

  void run(int64_t worker) {
    auto whole = wholes_.begin();
    Grid cut = grid(*whole);
    int64_t before = 0;  // blocks of the products before `whole`
    for (int64_t task = next_++; task < blocks_; task = next_++) {
      while (task - before >= cut.tasks()) {
        before += cut.tasks();
        cut = grid(*++whole);
      }
      gradient_task(*whole, cut, task - before, wholes_.front().scratch + worker * slot_floats_);
    }
  }

 private:
  Grid grid(const GradBlock& w) const { return gradient_grid(gemm_kernels(w.compute), w.m, w.n, enough_); }

  std::span<const GradBlock> wholes_;
  int64_t enough_ = 1, slot_floats_ = 0, blocks_ = 0, workers_ = 0;
  std::atomic<int64_t> next_{0};
};

}  // namespace

void weight_gradient(const GradBlock& whole) { weight_gradients({&whole, 1}); }

void weight_gradients(std::span<const GradBlock> wholes) {
  GradientTasks gradients(wholes);
  parallel_for(gradients.workers(), [&](int64_t worker, int) { gradients.run(worker); });
}

void multiply_beside(const GemmBlock& whole, const GradBlock& gradient) {
  if (gradient.out == whole.c.data) {
    multiply(whole);
    return weight_gradient(gradient);
  }
  const ProductTasks product(whole);
  GradientTasks gradients({&gradient, 1});
  const int64_t workers = gradients.workers();
  parallel_for(workers + product.count(), [&](int64_t task, int) {
    if (task < workers) gradients.run(task);
    else product.run(task - workers);
  });
}

}  // namespace mudd
