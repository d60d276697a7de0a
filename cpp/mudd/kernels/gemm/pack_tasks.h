// Packing of stored matrices as tasks of a parallel region, alone or before tasks that read them.
#pragma once

#include <atomic>
#include <span>
#include <thread>

#include "mudd/kernels/gemm/gemm.h"

namespace mudd {

// A counter of unfinished tasks. Wait for it only in tasks with a higher index of the same region: the counted
// ones have started by then and take about ten microseconds. No task of the region may throw, because the tasks
// after a failure are skipped.
class TasksLeft {
 public:
  void begin(int64_t count) { left_.store(count); }
  void done() { left_.fetch_sub(1, std::memory_order_release); }
  void wait() const {
    for (int spins = 0; left_.load(std::memory_order_acquire) > 0; ++spins)
      if (spins > 1000) std::this_thread::yield();  // the other thread may have lost its core
  }

 private:
  std::atomic<int64_t> left_{0};
};

class PackTasks {
 public:
  PackTasks(std::span<const Unpacked> matrices, DType compute);

  int64_t count() const { return count_; }
  void run(int64_t task);
  void wait() const { left_.wait(); }

 private:
  struct Cut {
    int64_t k, n, panels, step, tasks;  // of one matrix; panels of a task
  };
  Cut cut(const Unpacked& m) const;

  std::span<const Unpacked> matrices_;
  const GemmKernels& kernels_;
  const int64_t threads_;  // at planning of the tasks
  int64_t count_ = 0;
  TasksLeft left_;
};

}  // namespace mudd
