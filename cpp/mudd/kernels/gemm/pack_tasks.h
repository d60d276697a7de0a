// Packing of stored matrices as tasks of a parallel region, alone or in front of what reads them.
#pragma once

#include <atomic>
#include <span>

#include "mudd/kernels/gemm/gemm.h"

namespace mudd {

class PackTasks {
 public:
  PackTasks(std::span<const Unpacked> matrices, DType compute);

  int64_t count() const { return count_; }
  void run(int64_t task);
  // Returns when all tasks are done. Only for tasks of the same region with higher numbers: by then all of these
  // have begun, and they take some ten microseconds. No task of the region may throw, for those that follow a
  // failure are left out.
  void wait() const;

 private:
  struct Cut {
    int64_t k, n, panels, step, tasks;  // of one matrix; panels of a task
  };
  Cut cut(const Unpacked& m) const;

  std::span<const Unpacked> matrices_;
  const GemmKernels& kernels_;
  const int64_t threads_;  // as they were when the tasks were counted
  int64_t count_ = 0;
  std::atomic<int64_t> left_;
};

}  // namespace mudd
