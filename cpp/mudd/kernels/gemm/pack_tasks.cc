#include "mudd/kernels/gemm/pack_tasks.h"

#include <algorithm>
#include <thread>

#include "mudd/base/parallel.h"
#include "mudd/base/rounding.h"
#include "mudd/kernels/gemm/grid.h"

namespace mudd {

PackTasks::PackTasks(std::span<const Unpacked> matrices, DType compute)
    : matrices_(matrices), kernels_(gemm_kernels(compute)), threads_(num_threads()) {
  for (const Unpacked& m : matrices) count_ += m.count * cut(m).tasks;
  left_.store(count_);
}

PackTasks::Cut PackTasks::cut(const Unpacked& m) const {
  if (!m.w) return {};
  const int64_t k = m.transposed ? m.cols : m.rows, n = m.transposed ? m.rows : m.cols;
  const int64_t panels = ceil_div(n, kernels_.nr);
  // Whole runs of cache lines of each row (pack-inl.h), where that leaves a task for every thread.
  const int64_t least = std::clamp<int64_t>(panels / threads_, 1, 4);
  const int64_t step = std::clamp<int64_t>(kSmallTask / std::max<int64_t>(1, k * kernels_.nr), least, 16);
  return {k, n, panels, step, ceil_div(panels, step)};
}

void PackTasks::run(int64_t task) {
  auto m = matrices_.begin();
  Cut c = cut(*m);
  while (task >= m->count * c.tasks) {
    task -= m->count * c.tasks;
    c = cut(*++m);
  }
  const int64_t which = task / c.tasks, begin = task % c.tasks * c.step, end = std::min(begin + c.step, c.panels);
  const float* w = m->w + which * m->rows * m->cols;
  char* to = static_cast<char*>(m->to) + which * kernels_.panel_bytes(c.k, c.panels * kernels_.nr);
  (m->transposed ? kernels_.pack_transposed : kernels_.pack)(w, m->cols, c.k, c.n, begin, end, to);
  left_.fetch_sub(1, std::memory_order_release);
}

void PackTasks::wait() const {
  for (int spins = 0; left_.load(std::memory_order_acquire) > 0; ++spins)
    if (spins > 1000) std::this_thread::yield();  // whoever packs may have lost its core
}

void pack_weights(std::span<const Unpacked> matrices, DType compute) {
  PackTasks pack(matrices, compute);
  parallel_for(pack.count(), [&](int64_t task, int) { pack.run(task); });
}

void pack_weight(const float* w, int64_t rows, int64_t cols, bool transposed, void* packed, DType compute) {
  const Unpacked one{w, rows, cols, transposed, packed};
  pack_weights({&one, 1}, compute);
}

}  // namespace mudd
