// The gradient of a table (embeddings) of which a step reads few rows: it stores these rows; all others are
// zero.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace mudd {

struct RowGradient {
  int64_t table_rows = 0, width = 0;
  int64_t capacity = 0;      // rows that fit `values`
  float* values = nullptr;   // [count, width]
  int32_t* ids = nullptr;    // [count]: the row of the table; memory after them has ids of earlier steps, or zeros
  int32_t* place = nullptr;  // [table_rows]: 1 + the row of values, or 0: zeros, as in new memory
  int64_t count = 0;

  // Return the row of values, or -1.
  int64_t slot(int64_t r) const { return int64_t{place[r]} - 1; }
  const float* row(int64_t r) const { return place[r] == 0 ? nullptr : values + slot(r) * width; }
  // Return the number of rows in `ids`, which is `count` in the process that fills the list. `count` is no part of
  // shared memory, so other processes read it from the list. Error without `ids`.
  int64_t listed() const;
  // Add a row of the table unless it is there; the caller writes its values. Return false if there is no room.
  bool insert(int32_t id);
  // Remove all rows. The time depends on their number, not on table_rows.
  void clear();
  // Copy elements [begin, begin + n) of the whole table, row by row, zeros included.
  void copy(int64_t begin, int64_t n, float* to) const;
};

// The sum of one table's gradients over processes, in the order of base/shard_tree.h. Processes without a row
// are skipped in its sum: sums are never -0, so adding their zeros would change no bit.
class RowTotal {
 public:
  RowTotal() = default;
  explicit RowTotal(std::vector<RowGradient> leaves) : leaves_(std::move(leaves)) {}
  // The same as RowGradient::copy.
  void copy(int64_t begin, int64_t n, float* to) const;
  int64_t width() const { return leaves_[0].width; }
  // Return the gradient of each process; `ids` is null if it is whole.
  std::span<const RowGradient> leaves() const { return leaves_; }

 private:
  std::vector<RowGradient> leaves_;  // one at least
};

}  // namespace mudd
