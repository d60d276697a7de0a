// Sequences by global sample index: the output of every pipeline. The whole state of the data is one integer,
// the index of the next sample. A sequence depends on nothing else, so micro-batches, ranks and resumed runs
// see the same sequences.
#pragma once

#include <cstdint>

namespace mudd {

// The inputs of a source in addition to `inputs` and `targets`.
struct BatchParts {
  bool positions = false;  // of a token in its document
  bool segments = false;   // documents of a sequence; a token attends inside its segment
  bool key_mask = false;   // 0: hidden from attention
};

// The destination of sequences: arrays [n, T]. A null pointer skips that part; inputs and targets are required.
struct BatchRows {
  int32_t* inputs = nullptr;
  int32_t* targets = nullptr;  // -1: ignored
  int32_t* positions = nullptr;
  int32_t* segments = nullptr;
  int32_t* key_mask = nullptr;

  BatchRows from_row(int64_t row, int64_t length) const;
};

class BatchSource {
 public:
  // T = seq_len in [1, 2^31).
  BatchSource(int64_t seq_len, BatchParts parts);
  virtual ~BatchSource() = default;
  BatchSource(const BatchSource&) = delete;
  BatchSource& operator=(const BatchSource&) = delete;

  // Fill `out` with samples first, first + 1, ... Return the count of targets that are not ignored. One caller
  // at a time.
  int64_t fill(int64_t first_sample, int64_t n_samples, const BatchRows& out);

  // Repeat the first `samples` samples; 0 ends that.
  void repeat(int64_t samples);

  // Return the sequences of an epoch; for validation of all data.
  virtual int64_t rows() const = 0;

  int64_t seq_len() const { return seq_len_; }
  BatchParts parts() const { return parts_; }

 protected:
  // Fill one sequence and return its count of targets. `row` has all of parts(), or fewer if the caller skips
  // some.
  virtual int64_t fill_row(int64_t sample, const BatchRows& row) = 0;

 private:
  int64_t seq_len_;
  BatchParts parts_;
  int64_t repeat_ = 0;
};

}  // namespace mudd
