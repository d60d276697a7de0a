// The slots (token, choice) of a mixture sorted by expert: a counting sort, tokens in order inside an expert.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mudd/graph/node.h"

namespace mudd {

// Arrays in one allocation. A row is an index in sorted order.
struct ExpertSlots {
  int64_t n_experts = 0, slots = 0;  // slots: T k of the run, the maximum of rows
  int shards = 1;
  int64_t* cuts = nullptr;   // [E][shards + 1]: the rows of expert e in shard s are [cuts[e][s], cuts[e][s + 1])
  int32_t* token = nullptr;  // [rows]
  int32_t* slot = nullptr;   // [rows] token * k + r
  int32_t* place = nullptr;  // [slots]: the row of a slot, -1 without an expert
  float* gate = nullptr;     // [rows]

  ExpertSlots(std::byte* memory, int64_t n_experts, int64_t slots, int shards);
  static int64_t bytes(int64_t n_experts, int64_t slots, int shards);

  const int64_t* cuts_of(int64_t e) const { return cuts + e * (shards + 1); }
  int64_t begin(int64_t e) const { return cuts_of(e)[0]; }
  int64_t end(int64_t e) const { return cuts_of(e)[shards]; }
  int64_t rows() const { return n_experts ? end(n_experts - 1) : 0; }

  // Sort experts and gates [tokens, k]; an Error names an expert that does not exist.
  void sort(const Shards& cut, const Tensor& experts, const Tensor& gates) const;

  // A block of at most `step` rows of one expert, counted over the experts [first, last) in order.
  struct Block {
    int64_t expert, begin, end;
  };
  int64_t blocks(int64_t step, int64_t first, int64_t last) const;
  Block block(int64_t number, int64_t step, int64_t first) const;
};

}  // namespace mudd
