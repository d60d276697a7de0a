// Weight gradients as tasks of a parallel region. Private to this folder.
#pragma once

#include <algorithm>
#include <atomic>
#include <span>

#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/base/rounding.h"
#include "mudd/kernels/gemm/grid.h"

namespace mudd {

inline void check_gradient(const GradBlock& whole) {
  check(whole.shards >= 1 && whole.shards <= kMaxShards, "gemm", "shards: expected 1 to ", kMaxShards, ", got ",
        whole.shards);
  check(!whole.start || whole.shards == 1, "gemm", "shards: expected 1 with a start, got ", whole.shards);
  check(whole.n_add <= kMaxAdds, "gemm", "adds: expected at most ", kMaxAdds, ", got ", whole.n_add);
}

// Compute block `task` of the grid over `whole`.
inline void gradient_task(const GradBlock& whole, const Grid& grid, int64_t task, float* scratch) {
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

// Return the floats of scratch that a block of any gradient needs if each is split into at least `enough`.
inline int64_t largest_slot(std::span<const GradBlock> wholes, int64_t enough) {
  const GemmKernels& kernels = gemm_kernels(wholes.front().compute);
  int64_t floats = 1;
  for (const GradBlock& w : wholes)
    floats = std::max(floats, slot_floats(kernels, gradient_grid(kernels, w.m, w.n, enough), w.shards));
  return floats;
}

// The blocks of whole gradients. Each slot of their scratch belongs to one worker, which computes blocks until
// none is left. The thread count may have changed since planning.
class GradientTasks {
 public:
  explicit GradientTasks(std::span<const GradBlock> wholes) : wholes_(wholes) {
    if (wholes.empty()) return;
    for (const GradBlock& w : wholes) check_gradient(w);
    const GradBlock& first = wholes.front();
    const int64_t booked = first.scratch_bytes / static_cast<int64_t>(sizeof(float));
    // The plan may be for more threads than now: blocks must still fit into one slot.
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
    int64_t before = 0;  // blocks of the gradients before `whole`
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

}  // namespace mudd
