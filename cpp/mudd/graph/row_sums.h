// Sums over tokens of small row vectors (gains, biases), in the order of contracts 2. Rows are split into
// blocks of kRowBlock inside each shard; an op's kernel sums one block in row order into `partial`; finish()
// adds the blocks of a shard in order and the shards by a balanced binary tree.
#pragma once

#include <cstdint>

#include "mudd/graph/node.h"

namespace mudd {

constexpr int64_t kRowBlock = 64;

class RowSums {
 public:
  RowSums(const Shards& shards, int64_t rows, int64_t width) : shards_(shards), rows_(rows), width_(width) {}

  int64_t blocks() const;                                         // count of block tasks over all shards
  int64_t bytes() const;                                          // size of the scratch `partials`
  void range(int64_t block, int64_t* begin, int64_t* end) const;  // its rows
  float* partial(float* partials, int64_t block) const { return partials + block * width_; }
  // Sum all blocks into sink (nothing if sink.out is null). Overwrites partials.
  void finish(float* partials, const GradSink& sink) const;

 private:
  int64_t shard_blocks(int s) const;
  const Shards& shards_;
  int64_t rows_, width_;
};

}  // namespace mudd
