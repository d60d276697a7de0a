#include "mudd/ops/cross_entropy/loss_cut.h"

#include <algorithm>

namespace mudd {

LossCut LossCut::choose(int64_t shard_rows, int shards, int64_t vocabulary, int64_t d_model, int64_t budget,
                        DType compute) {
  LossCut cut;
  const int64_t row_bytes = vocabulary * static_cast<int64_t>(sizeof(float));
  const int64_t fitting = std::max<int64_t>(1, budget / row_bytes);
  if (shard_rows > std::max({fitting, d_model, kMinRows})) {
    const int64_t rows = std::max(fitting, kMinRows);
    cut.chunk_rows = rows >= kRowMultiple ? rows / kRowMultiple * kRowMultiple : rows;
    cut.chunk_rows = std::max(cut.chunk_rows, kMinRows);
    return cut;
  }
  // Twice the shards: as many rows of dlogits more, a sum of V x D less.
  const auto saves = [&] {
    return compute == DType::bf16 && cut.group * shard_rows * size_of(compute) < d_model * size_of(DType::f32);
  };
  while (cut.group < shards && (2 * cut.group * shard_rows <= fitting || saves())) cut.group *= 2;
  cut.chunk_rows = cut.group * shard_rows;
  return cut;
}

}  // namespace mudd
