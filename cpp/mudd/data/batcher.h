// Batches of token sequences. The whole state of the data is one integer, the index of the next global sample.
//
// Training (contracts 15): N ids, sequences of T + 1 ids that share one id with the next one. With
//   n = max(1, floor((N - T) / T)) sequences in an epoch,      epoch e = sample / n,      i = sample % n,
//   start offset o_e = Philox(seed, "data.offset")(e) mod min(T, N - n T)
// sample number `sample` is the sequence of T + 1 ids from o_e + permutation_e(i) T: each once an epoch, in
// an order keyed by (seed, "data.order"), with another offset in every epoch. Nothing else matters.
//
// Validation: sequence w starts at w T, so every id after the first is predicted exactly once; missing targets of
// the last sequence, and all of a sequence after it, are -1 (ignored) with input `pad_id`.
#pragma once

#include <cstdint>
#include <vector>

#include "mudd/base/rng.h"
#include "mudd/data/batch_source.h"
#include "mudd/data/token_file.h"

namespace mudd {

enum class BatchOrder : uint8_t { shuffled, sequential };

class Batcher final : public BatchSource {
 public:
  // T = seq_len in [1, 2^31). Error if the file has fewer than T + 1 ids (shuffled) or 2 ids (sequential).
  Batcher(TokenFileSpec file, BatchOrder order, int64_t seq_len, uint64_t seed, int32_t pad_id);

  // Return the position of the first id of a sample in the file.
  int64_t start_of(int64_t sample) const;

  int64_t rows() const override { return windows_; }
  int64_t tokens() const { return file_.count(); }
  TokenFile& file() { return file_; }

 private:
  int64_t fill_row(int64_t sample, const BatchRows& row) override;  // allocates nothing

  TokenFile file_;
  BatchOrder order_;
  int64_t windows_;
  int64_t offsets_;  // start offsets to choose from
  PhiloxKey order_key_;
  PhiloxKey offset_key_;
  int32_t pad_id_;
  std::vector<int32_t> window_;  // T + 1 ids
};

}  // namespace mudd
