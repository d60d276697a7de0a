#include "mudd/graph/row_sums.h"

#include <algorithm>
#include <array>

#include "mudd/base/parallel.h"
#include "mudd/base/shard_tree.h"

namespace mudd {

int64_t RowSums::shard_blocks(int s) const {
  const int64_t rows = shards_.row_begin(s + 1, rows_) - shards_.row_begin(s, rows_);
  return (rows + kRowBlock - 1) / kRowBlock;
}

int64_t RowSums::blocks() const {
  int64_t n = 0;
  for (int s = 0; s < shards_.count(); ++s) n += shard_blocks(s);
  return n;
}

int64_t RowSums::bytes() const { return blocks() * width_ * static_cast<int64_t>(sizeof(float)); }

void RowSums::range(int64_t block, int64_t* begin, int64_t* end) const {
  for (int s = 0; s < shards_.count(); ++s) {
    const int64_t n = shard_blocks(s);
    if (block >= n) {
      block -= n;
      continue;
    }
    *begin = shards_.row_begin(s, rows_) + block * kRowBlock;
    *end = std::min(*begin + kRowBlock, shards_.row_begin(s + 1, rows_));
    return;
  }
}

void RowSums::finish(float* partials, const GradSink& sink) const {
  if (!sink.out) return;
  constexpr int64_t kColumns = 256;
  parallel_for((width_ + kColumns - 1) / kColumns, [&](int64_t task, int) {
    const int64_t begin = task * kColumns, end = std::min(begin + kColumns, width_);
    // Inside a shard: add blocks in order to the shard's first block.
    std::array<float*, kMaxShards> sums;
    float* next = partials;
    for (int s = 0; s < shards_.count(); ++s) {
      sums[s] = next;
      for (int64_t b = 1; b < shard_blocks(s); ++b)
        for (int64_t i = begin; i < end; ++i) sums[s][i] += sums[s][b * width_ + i];
      next += shard_blocks(s) * width_;
    }
    shard_tree::pairs(shards_.count(), [&](int left, int right) {
      for (int64_t i = begin; i < end; ++i) sums[left][i] += sums[right][i];
    });
    for (int64_t i = begin; i < end; ++i) {
      float v = rows_ > 0 ? partials[i] : 0.0f;
      for (int a = 0; a < sink.n_add; ++a) v = sink.add[a][i] + v;
      sink.out[i] = v;
    }
  });
}

}  // namespace mudd
