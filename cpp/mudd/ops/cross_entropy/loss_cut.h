// Chunks of cross_entropy: the count of rows that have logits at the same time.
#pragma once

#include <cstdint>

#include "mudd/base/types.h"

namespace mudd {

// The split of a run into chunks of tokens, by shape only.
struct LossCut {
  static constexpr int64_t kMinRows = 64;      // fewer rows would read the head too often
  static constexpr int64_t kRowMultiple = 48;  // chunks are whole row blocks of the GEMMs if possible

  int group = 1;           // shards that share a chunk, a power of two
  int64_t chunk_rows = 0;  // most rows of a chunk; below a shard's rows only with group 1

  // Use `budget` bytes of logits at a time, but at least 64 rows or a shard. A shard of at most D rows is never
  // split: its logits need no more memory than the V x D sums that would wait between its chunks. For the same
  // reason more shards share a chunk if their dlogits take no more memory than those sums. sums: whether these
  // exist, which needs a head with a gradient.
  static LossCut choose(int64_t shard_rows, int shards, int64_t vocabulary, int64_t d_model, int64_t budget,
                        DType compute = DType::f32, bool sums = true);
};

}  // namespace mudd
