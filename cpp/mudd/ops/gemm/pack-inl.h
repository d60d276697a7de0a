// Packing of operands (layouts: gemm.h). Built per level.
#pragma once

#include "mudd/ops/gemm/micro-inl.h"
#include "mudd/ops/gemm/unit-inl.h"

namespace mudd::MUDD_ISA {
namespace {

template <class From>
constexpr int64_t kLine = 64 / sizeof(From);  // numbers of a cache line

// Lanes of a vector of which `left` numbers are there, some or none.
inline int lanes_left(int64_t left) { return static_cast<int>(left <= 0 ? 0 : left < kLanes ? left : kLanes); }

// Panels go in groups: rows are read in runs of some cache lines, and there are few write streams, whose distance
// is often a multiple of 4 KiB. Rows themselves lie pages apart, where no hardware fetches ahead.
constexpr int64_t kGroup = 4, kRowsAhead = 16;

// Row i of a matrix, or where `rows` is given its row rows[i].
template <class From>
inline From gathered(From b, int64_t stride, const int32_t* rows, int64_t i) {
  return b + (rows ? static_cast<int64_t>(rows[i]) : i) * stride;
}

// The row to fetch while row i of k is packed; past the end of a list nothing is known.
template <class From>
inline From row_ahead(From b, int64_t stride, const int32_t* rows, int64_t i, int64_t k) {
  return gathered(b, stride, rows, rows && i + kRowsAhead >= k ? i : i + kRowsAhead);
}

// Panels [panel_begin, panel_end) of b[k, n], panels `depth` rows long. rows: as in gathered().
template <class As, class From>
void pack_panels(const From* b, int64_t row_stride, const int32_t* rows, int64_t k, int64_t n, int64_t depth,
                 int64_t panel_begin, int64_t panel_end, typename As::Number* packed) {
  for (int64_t group = panel_begin; group < panel_end; group += kGroup) {
    const int64_t end = group + kGroup < panel_end ? group + kGroup : panel_end;
    const int64_t full = n / kNr < end ? n / kNr : end;
    for (int64_t i = 0; i < k; ++i) {
      const From* row = gathered(b, row_stride, rows, i);
      const From* ahead = row_ahead(b, row_stride, rows, i, k);
      for (int64_t c = group * kNr; c < end * kNr; c += kLine<From>) __builtin_prefetch(ahead + c);
      typename As::Number* to = packed + (group * depth + i) * kNr;
      int64_t p = group;
      for (; p < full; ++p, to += depth * kNr) {
        As::put(to, load(row + p * kNr));
        As::put(to + kLanes, load(row + p * kNr + kLanes));
      }
      for (; p < end; ++p, to += depth * kNr)
        for (int64_t j = 0; j < kNr; j += kLanes)
          As::put(to + j, load(row + p * kNr + j, lanes_left(n - p * kNr - j)));
    }
  }
}

template <class Unit>
void pack(const float* b, int64_t row_stride, int64_t k, int64_t n, int64_t panel_begin, int64_t panel_end,
          void* packed) {
  pack_panels<typename Unit::Packed>(b, row_stride, nullptr, k, n, k, panel_begin, panel_end,
                                     static_cast<typename Unit::Packed::Number*>(packed));
}

template <class Unit>
void pack_transposed(const float* b, int64_t row_stride, int64_t k, int64_t n, int64_t panel_begin,
                     int64_t panel_end, void* packed) {
  using As = typename Unit::Packed;
  constexpr int64_t kDepth = 16;  // one cache line of each of the panel's rows at a time
  alignas(64) float line[kNr];
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    const int64_t cols = n - p * kNr < kNr ? n - p * kNr : kNr;
    const float* from = b + p * kNr * row_stride;
    for (int64_t i0 = 0; i0 < k; i0 += kDepth) {
      const int64_t end = i0 + kDepth < k ? i0 + kDepth : k;
      for (int64_t i = i0; i < end; ++i) {
        for (int64_t j = 0; j < cols; ++j) line[j] = from[j * row_stride + i];
        for (int64_t j = cols; j < kNr; ++j) line[j] = 0.0f;
        typename As::Number* to = static_cast<typename As::Number*>(packed) + (p * k + i) * kNr;
        As::put(to, Vec::load(line));
        As::put(to + kLanes, Vec::load(line + kLanes));
      }
    }
  }
}

// x [rows, m] as tiles of kMr columns, [rows][kMr] each, kLeftTile floats apart, at most kKc rows. Whole vectors
// are stored; what they write too much is overwritten by the next row, or lies in the tile's tail.
constexpr int64_t kLeftTile = (kKc * kMr + kLanes + 15) / 16 * 16;

template <class As, class From>
void pack_left(const From* x, int64_t ldx, const int32_t* x_rows, int64_t rows, int64_t m, float* packed) {
  static_assert(kMr <= kLanes);
  for (int64_t r = 0; r < rows; ++r) {
    const From* row = gathered(x, ldx, x_rows, r);
    float* to = packed + r * kMr;
    const From* ahead = row_ahead(x, ldx, x_rows, r, rows);
    for (int64_t c = 0; c < m; c += kLine<From>) __builtin_prefetch(ahead + c);
    int64_t c = 0;
    for (; c + kLanes <= m; c += kMr, to += kLeftTile) As::put(to, load(row + c));
    for (; c < m; c += kMr, to += kLeftTile)
      As::put(to, load(row + c, static_cast<int>(m - c < kMr ? m - c : kMr)));
  }
}

}  // namespace
}  // namespace mudd::MUDD_ISA
