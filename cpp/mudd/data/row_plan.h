// The ids of a sequence, by its index: pieces of a token file. For inputs and targets see row_batcher.h.
#pragma once

#include <cstdint>
#include <vector>

#include "mudd/base/rng.h"

namespace mudd {

// Ids [first, first + count) of the file. joined: they continue the document of the piece before.
struct TokenRange {
  int64_t first = 0;
  int64_t count = 0;
  bool joined = false;
};

class RowPlan {
 public:
  virtual ~RowPlan() = default;

  // Return the sequences of an epoch; for validation of all data.
  virtual int64_t rows() const = 0;

  // Set `out` to the pieces of sequence `sample`; none after the end of a validation.
  virtual void pieces(int64_t sample, std::vector<TokenRange>& out) = 0;
};

// Consecutive documents in a file: their first ids, and the end of the last one.
class DocumentTable {
 public:
  // longest: the used ids of a document. tail: for a longer document, how many of its last ids follow the first
  // ones. Error for starts that decrease or exceed `end`.
  DocumentTable(std::vector<uint64_t> starts, int64_t end, int64_t longest, int64_t tail);

  int64_t count() const { return static_cast<int64_t>(starts_.size()); }
  int64_t length(int64_t document) const;  // after truncation
  void append(int64_t document, std::vector<TokenRange>& out) const;

 private:
  int64_t whole_length(int64_t document) const;

  std::vector<uint64_t> starts_;
  int64_t end_, longest_, tail_;
};

// One document per sequence, in order, from document `first`. wraps: restart after the last one.
class DocumentRows final : public RowPlan {
 public:
  DocumentRows(DocumentTable documents, int64_t first, int64_t count, bool wraps);
  int64_t rows() const override { return count_; }
  void pieces(int64_t sample, std::vector<TokenRange>& out) override;

 private:
  DocumentTable documents_;
  int64_t first_, count_;
  bool wraps_;
};

// Sequences from a table; sequence r has the pieces [begins[r], begins[r + 1]).
class TableRows final : public RowPlan {
 public:
  // buffer: sequences of a reservoir that shuffles each epoch, keyed by (seed, "data.reservoir"). The first
  // `buffer` sequences go in, then each new one replaces a random one, and at the end the rest come out in
  // random order. 0: in order.
  TableRows(std::vector<int64_t> begins, std::vector<TokenRange> pieces, int64_t buffer, uint64_t seed,
            bool wraps);
  int64_t rows() const override { return static_cast<int64_t>(begins_.size()) - 1; }
  void pieces(int64_t sample, std::vector<TokenRange>& out) override;

 private:
  int64_t row_of(int64_t sample);
  void shuffle(int64_t epoch);

  std::vector<int64_t> begins_;
  std::vector<TokenRange> pieces_;
  int64_t buffer_;
  PhiloxKey key_;
  bool wraps_;
  int64_t epoch_ = -1;  // the epoch of the stored order
  std::vector<int64_t> order_;
};

}  // namespace mudd
