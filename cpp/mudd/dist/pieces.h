// Ranges of a flat buffer in one message.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "mudd/dist/comm.h"

namespace mudd::dist {

// (first, count) of each range, adjacent ones merged.
using Ranges = std::vector<std::pair<int64_t, int64_t>>;

// Return the ranges of the pieces of wanted owners, adjacent ones merged.
template <class Wanted>
Ranges ranges_of(std::span<const OwnedRange> pieces, const Wanted& wanted) {
  Ranges ranges;
  for (const OwnedRange& piece : pieces) {
    if (piece.length == 0 || !wanted(piece.owner)) continue;
    if (!ranges.empty() && ranges.back().first + ranges.back().second == piece.offset)
      ranges.back().second += piece.length;
    else ranges.emplace_back(piece.offset, piece.length);
  }
  return ranges;
}

inline int64_t total(const Ranges& ranges) {
  int64_t sum = 0;
  for (const auto& [first, count] : ranges) sum += count;
  return sum;
}

// Return the source of a message of the ranges: the buffer if they are one range, else a copy in `scratch`.
template <class T>
const T* packed(const T* plane, int64_t width, const Ranges& ranges, std::vector<T>& scratch) {
  if (!plane) return nullptr;
  if (ranges.size() == 1) return plane + ranges[0].first * width;
  scratch.resize(static_cast<size_t>(total(ranges) * width));
  T* to = scratch.data();
  for (const auto& [first, count] : ranges) {
    std::memcpy(to, plane + first * width, static_cast<size_t>(count * width) * sizeof(T));
    to += count * width;
  }
  return scratch.data();
}

}  // namespace mudd::dist
