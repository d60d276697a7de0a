// Threads over the rows of elementwise ops: blocks of rows with about kTaskElements elements each.
#pragma once

#include <algorithm>
#include <cstdint>

#include "mudd/base/parallel.h"

namespace mudd {

constexpr int64_t kTaskElements = 16384;  // 64 KiB of fp32 per operand: in L2, and worth waking a thread for

// body(begin, end) for blocks that cover [0, rows), cut by shape.
template <class Body>
void parallel_rows(int64_t rows, int64_t cols, Body body) {
  const int64_t block = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, cols));
  parallel_for((rows + block - 1) / block,
               [&](int64_t task, int) { body(task * block, std::min(rows, (task + 1) * block)); });
}

}  // namespace mudd
