#include "mudd/kernels/reduce/reduce.h"

#include <algorithm>
#include <atomic>

#include "mudd/base/parallel.h"
#include "mudd/base/row_lists.h"
#include "mudd/base/row_tasks.h"
#include "mudd/base/shard_tree.h"
#include "mudd/kernels/convert/wide_rows.h"

namespace mudd {

std::span<const KernelRow<ReduceKernels>> reduce_rows() {
  static const KernelRow<ReduceKernels> rows[] = {MUDD_KERNEL_ROWS(reduce_f32)};
  return rows;
}

namespace {

const ReduceKernels& kernels() {
  static const ReduceKernels& best = choose(reduce_rows());
  return best;
}

double block_square(const GradientPlanes& g, int64_t block) {
  const int64_t at = block * kNormBlock, begin = g.begin + at, n = std::min(kNormBlock, g.n - at);
  const float* planes[kMaxPlanes] = {};
  float copies[kMaxPlanes][kNormBlock];  // of planes with a row list
  for (int p = 0; p < g.n_planes; ++p) {
    if (g.rows[p]) g.rows[p]->copy(begin, n, copies[p]);
    planes[p] = g.rows[p] ? copies[p] : g.planes[p] + begin;
  }
  return kernels().squares(n, planes, g.n_planes);
}

std::span<const RowTotal* const> totals_of(const GradientPlanes& g) {
  return {g.rows, static_cast<size_t>(g.n_planes)};
}
bool is_listed(const GradientPlanes& g) { return RowLists::are_complete(totals_of(g)); }

// Return the number of blocks that are computed one after another.
int64_t dense_blocks(const GradientPlanes& g) { return is_listed(g) ? 0 : norm_blocks(g.n); }

// Write the blocks of a gradient that is all row lists: blocks without rows are zero.
void listed_block_squares(const GradientPlanes& g, std::span<double> block_sums) {
  const RowLists lists(totals_of(g));
  constexpr int64_t kEntriesPerTask = 64;
  const std::span<double> out = block_sums.subspan(static_cast<size_t>(g.first_block), norm_blocks(g.n));
  std::fill(out.begin(), out.end(), 0.0);
  const int64_t width = g.rows[0]->width();
  parallel_for((lists.entries() + kEntriesPerTask - 1) / kEntriesPerTask, [&](int64_t task, int) {
    const int64_t end = std::min(lists.entries(), (task + 1) * kEntriesPerTask);
    for (int64_t entry = task * kEntriesPerTask; entry < end; ++entry) {
      const int64_t row = lists.row(entry);
      if (row < 0) continue;
      const int64_t from = std::max<int64_t>(0, row * width - g.begin),
                    to = std::min(g.n, (row + 1) * width - g.begin);
      for (int64_t block = from / kNormBlock; block * kNormBlock < to; ++block) {
        // The first row of a block computes it.
        int64_t first = (g.begin + block * kNormBlock) / width;
        while (first < row && !lists.has(first)) ++first;
        if (first == row) out[static_cast<size_t>(block)] = block_square(g, block);
      }
    }
  });
}

}  // namespace

void block_squares(std::span<const GradientPlanes> gradients, std::span<double> block_sums) {
  constexpr int64_t kBlocksPerTask = 16;
  int64_t blocks = 0;
  for (const GradientPlanes& g : gradients) {
    check(g.n_planes >= 1 && g.n_planes <= kMaxPlanes, "block_squares", "n_planes: expected 1 to ", kMaxPlanes,
          ", got ", g.n_planes);
    check(g.begin % kNormBlock == 0, "block_squares", "begin: expected a multiple of ", kNormBlock, ", got ",
          g.begin);
    check(g.first_block >= 0 && g.first_block + norm_blocks(g.n) <= std::ssize(block_sums), "block_squares",
          "blocks: expected at least ", g.first_block + norm_blocks(g.n), ", got ", block_sums.size());
    blocks += dense_blocks(g);
    if (is_listed(g)) listed_block_squares(g, block_sums);
  }
  parallel_for((blocks + kBlocksPerTask - 1) / kBlocksPerTask, [&](int64_t task, int) {
    int64_t at = task * kBlocksPerTask;
    const int64_t end = std::min(at + kBlocksPerTask, blocks);
    int64_t first = 0;  // index of the first block of this gradient
    for (const GradientPlanes& g : gradients) {
      const int64_t after = first + dense_blocks(g);
      for (; at < std::min(after, end); ++at) block_sums[g.first_block + at - first] = block_square(g, at - first);
      if (at == end) return;
      first = after;
    }
  });
}

double squared_norm(std::span<const double> blocks) {
  double total = 0;
  for (double block : blocks) total += block;
  return total;
}

namespace {

constexpr int64_t kSumPiece = 1 << 14;  // elements of a task

void check_count(std::span<const float* const> planes) {
  check(!planes.empty() && planes.size() <= kMaxShards, "sum_planes", "planes: expected 1 to ", kMaxShards,
        ", got ", planes.size());
}

void sum_piece(std::span<const float* const> planes, float* out, int64_t n, int64_t piece) {
  const float* from[kMaxShards];
  for (size_t p = 0; p < planes.size(); ++p) from[p] = planes[p] + piece * kSumPiece;
  kernels().sum(std::min(kSumPiece, n - piece * kSumPiece), from, static_cast<int>(planes.size()),
                out + piece * kSumPiece);
}

}  // namespace

void sum_planes(std::span<const float* const> planes, float* out, int64_t n) {
  check_count(planes);
  parallel_for((n + kSumPiece - 1) / kSumPiece, [&](int64_t task, int) { sum_piece(planes, out, n, task); });
}

void sum_planes_alone(std::span<const float* const> planes, float* out, int64_t n) {
  check_count(planes);
  parallel_for(1, [&](int64_t, int) {
    for (int64_t piece = 0; piece * kSumPiece < n; ++piece) sum_piece(planes, out, n, piece);
  });
}

bool all_finite(const Tensor& x) {
  std::atomic<bool> finite{true};
  parallel_rows(x.rows, x.cols, [&](int64_t begin, int64_t end) {
    const WideRows rows(x, begin, end);
    for (int64_t r = begin; r < end; ++r)
      if (!kernels().finite(x.cols, rows.row(r))) finite.store(false, std::memory_order_relaxed);
  });
  return finite.load();
}

double shard_sum(const double* values, int n) {
  shard_tree::Counter<double> sums;
  double total = 0;
  for (int i = 0; i < n; ++i) total = sums.add(i, n, values[i]);
  return total;
}

}  // namespace mudd
