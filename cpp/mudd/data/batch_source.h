// Rows by global sample number: what every pipeline gives the graph. The whole state of the data is one integer,
// the number of the next sample; a row depends on nothing else, so micro-batches, ranks and resumes see the same
// rows.
#pragma once

#include <cstdint>

namespace mudd {

// The inputs beside `inputs` and `targets` that the rows of a source have.
struct BatchParts {
  bool positions = false;  // of a token in its document
  bool segments = false;   // documents of a row; a token sees those of its own segment
  bool key_mask = false;   // 0 where nothing may look
};

// Where rows go: arrays [n, T], row by row. A null pointer leaves that part out; inputs and targets are always
// there.
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

  // Fills `out` with samples first, first + 1, ... Returns the number of targets that count. One caller at a time.
  int64_t fill(int64_t first_sample, int64_t n_samples, const BatchRows& out);

  // Gives the first `samples` samples again and again; 0 ends that.
  void repeat(int64_t samples);

  // Rows of an epoch; for validation in all.
  virtual int64_t rows() const = 0;

  int64_t seq_len() const { return seq_len_; }
  BatchParts parts() const { return parts_; }

 protected:
  // Fills one row and returns its number of targets. `row` has all of parts(), or fewer where they were left out.
  virtual int64_t fill_row(int64_t sample, const BatchRows& row) = 0;

 private:
  int64_t seq_len_;
  BatchParts parts_;
  int64_t repeat_ = 0;
};

}  // namespace mudd
