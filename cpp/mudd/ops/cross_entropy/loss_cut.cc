#include "mudd/ops/cross_entropy/loss_cut.h"

#include <algorithm>

namespace mudd {

LossCut LossCut::choose(int64_t shard_rows, int shards, int64_t vocabulary, int64_t d_model, int64_t budget,
                        DType compute, bool sums) {
  LossCut cut;
  const int64_t row_bytes = vocabulary * static_cast<int64_t>(sizeof(float));
  const int64_t fitting = std::max<int64_t>(1, budget / row_bytes);
  if (shard_rows > std::max({fitting, d_model, kMinRows})) {
    const int64_t rows = std::max(fitting, kMinRows);
    cut.chunk_rows = rows >= kRowMultiple ? rows / kRowMultiple * kRowMultiple : rows;
    cut.chunk_rows = std::max(cut.chunk_rows, kMinRows);
    return cut;
  }
  // Twice the shards need twice the rows of dlogits, but one V x D sum less. In fp32 the head is also packed
  // half as often, so this pays even for equal memory.
  const auto pays = [&] {
    const int64_t more = cut.group * shard_rows * size_of(compute), less = d_model * size_of(DType::f32);
    return sums && (compute == DType::f32 ? more <= less : more < less);
  };
  while (cut.group < shards && (2 * cut.group * shard_rows <= fitting || pays())) cut.group *= 2;
  cut.chunk_rows = cut.group * shard_rows;
  return cut;
}

}  // namespace mudd
