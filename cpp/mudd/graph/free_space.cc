#include "mudd/graph/free_space.h"

#include <algorithm>

namespace mudd {

FreeSpace::FreeSpace(int positions) {
  while (size_ < positions) size_ *= 2;
  nodes_.resize(2 * static_cast<size_t>(size_));
}

void FreeSpace::add(Ranges& ranges, Range taken) {
  const auto begin = std::lower_bound(ranges.begin(), ranges.end(), taken.begin,
                                      [](const Range& r, int64_t at) { return r.end < at; });
  auto end = begin;
  for (; end != ranges.end() && end->begin <= taken.end; ++end) {
    taken.begin = std::min(taken.begin, end->begin);
    taken.end = std::max(taken.end, end->end);
  }
  if (begin == end) {
    ranges.insert(begin, taken);
    return;
  }
  *begin = taken;
  ranges.erase(begin + 1, end);
}

void FreeSpace::take(int first, int last, int64_t offset, int64_t bytes) {
  if (bytes > 0) take(1, 0, size_, first, last, {offset, offset + bytes});
}

void FreeSpace::take(int node, int begin, int end, int first, int last, Range taken) {
  if (last < begin || end <= first) return;
  add(nodes_[node].sometimes, taken);
  if (first <= begin && end <= last + 1) {
    add(nodes_[node].throughout, taken);
    return;
  }
  const int middle = (begin + end) / 2;
  take(2 * node, begin, middle, first, last, taken);
  take(2 * node + 1, middle, end, first, last, taken);
}

void FreeSpace::collect(int node, int begin, int end, int first, int last) const {
  if (last < begin || end <= first) return;
  const bool inside = first <= begin && end <= last + 1;
  const Ranges& ranges = inside ? nodes_[node].sometimes : nodes_[node].throughout;
  if (!ranges.empty()) relevant_.push_back(&ranges);
  if (inside) return;
  const int middle = (begin + end) / 2;
  collect(2 * node, begin, middle, first, last);
  collect(2 * node + 1, middle, end, first, last);
}

int64_t FreeSpace::lowest(int first, int last, int64_t bytes) const {
  if (bytes == 0) return 0;
  relevant_.clear();
  collect(1, 0, size_, first, last);
  int64_t at = 0;
  for (size_t i = 0, clear = 0; clear < relevant_.size(); i = (i + 1) % relevant_.size()) {
    const Ranges& ranges = *relevant_[i];
    auto r = std::lower_bound(ranges.begin(), ranges.end(), at,
                              [](const Range& range, int64_t offset) { return range.end <= offset; });
    ++clear;
    ++compared_;
    for (; r != ranges.end() && r->begin < at + bytes; ++r, ++compared_) {
      at = r->end;
      clear = 1;
    }
  }
  return at;
}

}  // namespace mudd
