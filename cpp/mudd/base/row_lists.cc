#include "mudd/base/row_lists.h"

#include <algorithm>

namespace mudd {

bool RowLists::are_complete(std::span<const RowTotal* const> totals) {
  int64_t lists = 0;
  for (const RowTotal* total : totals) {
    if (!total) return false;
    for (const RowGradient& leaf : total->leaves())
      if (!leaf.ids || ++lists > kMost) return false;
  }
  return true;
}

RowLists::RowLists(std::span<const RowTotal* const> totals) {
  for (const RowTotal* total : totals)
    for (const RowGradient& leaf : total->leaves()) {
      lists_[n_] = &leaf;
      ends_[n_] = entries() + leaf.listed();
      ++n_;
    }
}

int64_t RowLists::row(int64_t entry) const {
  const int list = static_cast<int>(std::upper_bound(ends_, ends_ + n_, entry) - ends_);
  const int64_t id = lists_[list]->ids[entry - (list > 0 ? ends_[list - 1] : 0)];
  for (int earlier = 0; earlier < list; ++earlier)
    if (lists_[earlier]->row(id)) return -1;
  return id;
}

bool RowLists::has(int64_t row) const {
  return std::any_of(lists_, lists_ + n_, [&](const RowGradient* list) { return list->row(row); });
}

}  // namespace mudd
