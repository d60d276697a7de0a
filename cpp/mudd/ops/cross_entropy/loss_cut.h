// Chunks of cross_entropy: how many rows have logits at the same time.
#pragma once

#include <cstdint>

#include "mudd/base/types.h"

namespace mudd {

// How a run is cut into chunks of tokens, by shape alone.
struct LossCut {
  static constexpr int64_t kMinRows = 64;      // fewer rows a chunk would read the head too often
  static constexpr int64_t kRowMultiple = 48;  // chunks are whole row blocks of the GEMMs where they can be

  int group = 1;           // shards that share a chunk, a power of two
  int64_t chunk_rows = 0;  // most rows of a chunk; below a shard's rows only with group 1

  // `budget` bytes of logits at a time, but at least 64 rows or a shard. A shard of at most D rows is never cut:
  // its logits need no more memory than the V x D sums that must then wait between its chunks. For the same reason
  // more shards share a chunk where their dlogits take no more memory than the sums that would wait between them;
  // sums: whether there are any, which takes a head that wants its gradient.
  static LossCut choose(int64_t shard_rows, int shards, int64_t vocabulary, int64_t d_model, int64_t budget,
                        DType compute = DType::f32, bool sums = true);
};

}  // namespace mudd
