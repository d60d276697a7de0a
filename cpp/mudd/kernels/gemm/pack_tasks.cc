#include "mudd/kernels/gemm/pack_tasks.h"

#include <algorithm>

#include "mudd/base/parallel.h"
#include "mudd/base/rounding.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/kernels/convert/wide_rows.h"
#include "mudd/kernels/gemm/grid.h"

namespace mudd {
namespace {

constexpr int64_t kBlockDepth = 64,
                  kBlockPanels =
                      4;  // block of a 16-bit matrix that is converted to fp32 at a time: it stays in L2

// Pack panels [begin, end) of a 16-bit matrix through an fp32 copy of one block at a time. Depth is split at
// multiples of the padding, so the pieces are where the whole panel has them.
void pack_narrow(const GemmKernels& kernels, ConstCells w, int64_t cols, bool transposed, int64_t k, int64_t n,
                 int64_t begin, int64_t end, char* to) {
  const int64_t nr = kernels.nr;
  const WorkerFloats copy(kBlockDepth * kBlockPanels * nr);
  for (int64_t group = begin; group < end; group += kBlockPanels) {
    const int64_t first = group * nr, count = std::min(n, std::min(end, group + kBlockPanels) * nr) - first;
    for (int64_t i = 0; i < k; i += kBlockDepth) {
      const int64_t depth = std::min(kBlockDepth, k - i), stride = transposed ? depth : count;
      if (transposed)
        for (int64_t j = 0; j < count; ++j)
          copy_wide(depth, w + ((first + j) * cols + i), copy.data() + j * depth);
      else
        for (int64_t r = 0; r < depth; ++r)
          copy_wide(count, w + ((i + r) * cols + first), copy.data() + r * count);
      for (int64_t j = 0; j < count; j += nr)
        (transposed ? kernels.pack_transposed : kernels.pack)(
            copy.data() + j * (transposed ? depth : 1), stride, depth, std::min(nr, count - j), 0, 1,
            to + kernels.panel_bytes(k, first + j) + kernels.panel_bytes(i, nr));
    }
  }
}

}  // namespace

PackTasks::PackTasks(std::span<const Unpacked> matrices, DType compute)
    : matrices_(matrices), kernels_(gemm_kernels(compute)), threads_(num_threads()) {
  for (const Unpacked& m : matrices) count_ += m.count * cut(m).tasks;
  left_.begin(count_);
}

PackTasks::Cut PackTasks::cut(const Unpacked& m) const {
  if (!m.w) return {};
  const int64_t k = m.transposed ? m.cols : m.rows, n = m.transposed ? m.rows : m.cols;
  const int64_t panels = ceil_div(n, kernels_.nr);
  // Pack whole runs of cache lines of each row (pack-inl.h) if there is a task for every thread.
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
  const ConstCells w = m->w + which * m->rows * m->cols;
  char* to = static_cast<char*>(m->to) + which * kernels_.panel_bytes(c.k, c.panels * kernels_.nr);
  if (w.type == DType::f32)
    (m->transposed ? kernels_.pack_transposed : kernels_.pack)(w.f32(), m->cols, c.k, c.n, begin, end, to);
  else pack_narrow(kernels_, w, m->cols, m->transposed, c.k, c.n, begin, end, to);
  left_.done();
}

void pack_weights(std::span<const Unpacked> matrices, DType compute) {
  PackTasks pack(matrices, compute);
  parallel_for(pack.count(), [&](int64_t task, int) { pack.run(task); });
}

void pack_weight(ConstCells w, int64_t rows, int64_t cols, bool transposed, void* packed, DType compute) {
  const Unpacked one{w, rows, cols, transposed, packed};
  pack_weights({&one, 1}, compute);
}

}  // namespace mudd
