// The slots that an expert of limited capacity keeps (docs/maths/moe.md, 4).
#pragma once

#include <cstdint>

namespace mudd {

struct Capacity {
  double factor = 0;       // 0: unlimited
  bool per_shard = false;  // of all tokens of a shard, else of each sequence
  bool by_probs = false;   // the largest gates stay, else the first slots

  bool limited() const { return factor > 0; }
  // Return the slots that an expert keeps of `tokens` tokens with k slots each: floor(tokens k / E * factor) of
  // a sequence, rounded up for a shard.
  int64_t of(int64_t tokens, int64_t k, int64_t experts) const;
};

// Set experts[i] = -1 for the dropped slots among n slots in token-major order; gates: before dropping. work: n
// + number of experts ints.
void drop_over_capacity(const Capacity& capacity, int64_t limit, int64_t n, int64_t n_experts, const float* gates,
                        int32_t* experts, int32_t* work);

}  // namespace mudd
