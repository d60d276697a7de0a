#include "mudd/graph/row_sums.h"

#include <algorithm>

#include "mudd/base/parallel.h"

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
    // Inside a shard: blocks in order, into the shard's first block.
    int64_t first = 0;
    for (int s = 0; s < shards_.count(); ++s) {
      float* sum = partials + first * width_;
      for (int64_t b = 1; b < shard_blocks(s); ++b)
        for (int64_t i = begin; i < end; ++i) sum[i] += sum[b * width_ + i];
      first += shard_blocks(s);
    }
    // Over shards: pairs at distance 1, 2, 4, ...
    for (int distance = 1; distance < shards_.count(); distance *= 2) {
      int64_t at = 0;
      int64_t left = 0;
      for (int s = 0; s < shards_.count(); at += shard_blocks(s), ++s) {
        if (s % (2 * distance) == 0) left = at;
        if (s % (2 * distance) != distance) continue;
        for (int64_t i = begin; i < end; ++i) partials[left * width_ + i] += partials[at * width_ + i];
      }
    }
    for (int64_t i = begin; i < end; ++i) {
      float v = rows_ > 0 ? partials[i] : 0.0f;
      for (int a = 0; a < sink.n_add; ++a) v = sink.add[a][i] + v;
      sink.out[i] = v;
    }
  });
}

}  // namespace mudd
