// RowLists: all rows that a gradient has, for work whose time must not depend on the number of rows of the table.
#pragma once

#include <cstdint>
#include <span>

#include "mudd/base/row_gradient.h"

namespace mudd {

class RowLists {
 public:
  // totals: of the uses of a parameter; null: the gradient of the use is whole.
  // Return false if a use or a process has a whole gradient, so that each row may have one.
  static bool are_complete(std::span<const RowTotal* const> totals);
  // totals: complete. They must outlive the object.
  explicit RowLists(std::span<const RowTotal* const> totals);

  int64_t entries() const { return n_ > 0 ? ends_[n_ - 1] : 0; }
  // Return the row of an entry, or -1 if an earlier list has the same row.
  int64_t row(int64_t entry) const;
  // Return true if a list has the row.
  bool has(int64_t row) const;

 private:
  static constexpr int64_t kMost = 64;
  const RowGradient* lists_[kMost];
  int64_t ends_[kMost];
  int n_ = 0;
};

}  // namespace mudd
