// Threads over rows: blocks of about kTaskElements elements for elementwise ops, and tasks with scratch for
// each worker.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "mudd/base/parallel.h"

namespace mudd {

constexpr int64_t kTaskElements = 16384;  // 64 KiB of fp32 per operand: fits L2, and worth waking a thread

// Call body(begin, end) for blocks that cover [0, rows), split by shape.
template <class Body>
void parallel_rows(int64_t rows, int64_t cols, Body body) {
  const int64_t block = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, cols));
  parallel_for((rows + block - 1) / block,
               [&](int64_t task, int) { body(task * block, std::min(rows, (task + 1) * block)); });
}

// Call body(task, scratch) for all tasks on at most `slots` workers: scratch was planned for them, and the
// thread count may have been raised since.
template <class Body>
void tasks_with_scratch(int64_t tasks, int64_t slots, std::byte* scratch, int64_t bytes, Body body) {
  std::atomic<int64_t> next{0};
  parallel_for(std::min(slots, tasks), [&](int64_t slot, int) {
    auto* own = reinterpret_cast<float*>(scratch + slot * bytes);
    for (int64_t task = claim(next); task < tasks; task = claim(next)) body(task, own);
  });
}

}  // namespace mudd
