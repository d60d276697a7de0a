#include "mudd/kernels/gemm/gemm.h"

#include <algorithm>
#include <atomic>

#include "mudd/base/parallel.h"
#include "mudd/base/rounding.h"
#include "mudd/kernels/gemm/grid.h"
#include "mudd/kernels/gemm/pack_tasks.h"

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

namespace {

// The tasks of a whole GEMM, after the tasks that pack its B. Tasks that multiply wait until the last of them is
// done: less than the end of a parallel region and the start of the next would take.
class ProductTasks {
 public:
  explicit ProductTasks(const GemmBlock& whole)
      : whole_(whole),
        kernels_(gemm_kernels(whole.compute)),
        grid_(product_grid(kernels_, whole.m, whole.n, whole.k)),
        pack_({&whole.pack, 1}, whole.compute) {}

  int64_t packs() const { return pack_.count(); }
  int64_t count() const { return grid_.tasks(); }

  void pack(int64_t task) { pack_.run(task); }

  void run(int64_t task) const {
    pack_.wait();
    const int64_t row = grid_.row(task), column = grid_.column(task);
    GemmBlock block = whole_;
    block.m = grid_.rows(task);
    block.n = grid_.columns(task);
    if (whole_.a_rows) block.a_rows += row;
    else block.a += row * whole_.lda;
    const void* b = whole_.pack.w ? whole_.pack.to : whole_.b;
    block.b = static_cast<const char*>(b) + kernels_.panel_bytes(whole_.k, column);
    block.c += row * whole_.ldc + column;
    // The next tasks of these columns find B in L2, unless it fills that.
    const int64_t turn = num_threads() * grid_.step_m, next = row + turn;  // tasks are dealt in turn
    block.fetch_b = row < turn || kernels_.panel_bytes(whole_.k, block.n) > kStaysInL2;
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
  PackTasks pack_;
};

}  // namespace

void multiply(const GemmBlock& whole) {
  ProductTasks product(whole);
  const int64_t packs = product.packs();
  parallel_for(packs + product.count(), [&](int64_t task, int) {
    if (task < packs) product.pack(task);
    else product.run(task - packs);
  });
}

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
    for (int64_t task = claim(next_); task < blocks_; task = claim(next_)) {
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

// Whether two of them are sums in one memory: of one value that an op got twice, where the later adds to the
// earlier.
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
  ProductTasks product(whole);
  GradientTasks gradients({&gradient, 1});
  const int64_t packs = product.packs(), workers = gradients.workers();
  parallel_for(packs + workers + product.count(), [&](int64_t task, int) {
    if (task < packs) product.pack(task);
    else if (task < packs + workers) gradients.run(task - packs);
    else product.run(task - packs - workers);
  });
}

}  // namespace mudd
