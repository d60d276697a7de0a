#include "mudd/base/row_gradient.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "mudd/base/check.h"

namespace mudd {
namespace {

constexpr int64_t kChunk = 64;  // elements of a row that are summed at a time

// Set `to` to the sum of columns [column, column + n) of row r over the leaves. Return false, and write
// nothing, if no leaf has the row.
bool sum_row(std::span<const RowGradient> leaves, int64_t r, int64_t column, int64_t n, float* to) {
  if (leaves.size() == 1) {
    const float* row = leaves[0].row(r);
    if (row) std::memcpy(to, row + column, static_cast<size_t>(n) * sizeof(float));
    return row != nullptr;
  }
  const size_t left = std::bit_ceil(leaves.size()) / 2;
  float right[kChunk];
  const bool has_left = sum_row(leaves.first(left), r, column, n, to);
  const bool has_right = sum_row(leaves.subspan(left), r, column, n, right);
  if (has_right && !has_left) std::memcpy(to, right, static_cast<size_t>(n) * sizeof(float));
  if (has_right && has_left)
    for (int64_t i = 0; i < n; ++i) to[i] += right[i];
  return has_left || has_right;
}

}  // namespace

bool RowGradient::insert(int32_t id) {
  if (place[id] != 0) return true;
  if (count == capacity) return false;
  ids[count++] = id;
  place[id] = static_cast<int32_t>(count);
  return true;
}

// Entry k of the list has a row if the place of this row refers to k. Such entries come first.
int64_t RowGradient::listed() const {
  check(ids != nullptr, "row_gradient", "ids: expected a list of rows, got a whole gradient");
  int64_t low = 0, high = capacity;
  while (low < high) {
    const int64_t k = low + (high - low) / 2;
    if (slot(ids[k]) == k) low = k + 1;
    else high = k;
  }
  return low;
}

void RowGradient::clear() {
  for (int64_t i = 0; i < count; ++i) place[ids[i]] = 0;
  count = 0;
}

void RowGradient::copy(int64_t begin, int64_t n, float* to) const {
  for (const int64_t end = begin + n; begin < end;) {
    const int64_t row = begin / width, column = begin % width, count_here = std::min(width - column, end - begin);
    const float* from = this->row(row);
    if (!from) std::memset(to, 0, static_cast<size_t>(count_here) * sizeof(float));
    else std::memcpy(to, from + column, static_cast<size_t>(count_here) * sizeof(float));
    begin += count_here;
    to += count_here;
  }
}

void RowTotal::copy(int64_t begin, int64_t n, float* to) const {
  if (leaves_.size() == 1) return leaves_[0].copy(begin, n, to);
  const int64_t width = leaves_[0].width;
  for (const int64_t end = begin + n; begin < end;) {
    const int64_t row = begin / width, column = begin % width;
    const int64_t count = std::min({width - column, end - begin, kChunk});
    if (!sum_row(leaves_, row, column, count, to)) std::memset(to, 0, static_cast<size_t>(count) * sizeof(float));
    begin += count;
    to += count;
  }
}

}  // namespace mudd
