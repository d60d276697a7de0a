// Packing of operands (layouts: gemm.h). Built per level.
#pragma once

#include "mudd/ops/gemm/micro-inl.h"

namespace mudd::MUDD_ISA {
namespace {

// Panels go in groups: rows are read in runs of some cache lines, and there are few write streams, whose distance
// is often a multiple of 4 KiB. Rows themselves lie pages apart, where no hardware fetches ahead.
constexpr int64_t kGroup = 4, kRowsAhead = 16;

// Row i of a matrix, or where `rows` is given its row rows[i].
inline const float* gathered(const float* b, int64_t stride, const int32_t* rows, int64_t i) {
  return b + (rows ? static_cast<int64_t>(rows[i]) : i) * stride;
}

// The row to fetch while row i of k is packed; past the end of a list nothing is known.
inline const float* row_ahead(const float* b, int64_t stride, const int32_t* rows, int64_t i, int64_t k) {
  return gathered(b, stride, rows, rows && i + kRowsAhead >= k ? i : i + kRowsAhead);
}

// Panels [panel_begin, panel_end) of b[k, n], panels `depth` rows long. rows: as in gathered().
void pack_panels(const float* b, int64_t row_stride, const int32_t* rows, int64_t k, int64_t n, int64_t depth,
                 int64_t panel_begin, int64_t panel_end, float* packed) {
  for (int64_t group = panel_begin; group < panel_end; group += kGroup) {
    const int64_t end = group + kGroup < panel_end ? group + kGroup : panel_end;
    const int64_t full = n / kNr < end ? n / kNr : end;
    for (int64_t i = 0; i < k; ++i) {
      const float* row = gathered(b, row_stride, rows, i);
      const float* ahead = row_ahead(b, row_stride, rows, i, k);
      for (int64_t c = group * kNr; c < end * kNr; c += 16) __builtin_prefetch(ahead + c);
      float* to = packed + (group * depth + i) * kNr;
      int64_t p = group;
      for (; p < full; ++p, to += depth * kNr) {
        Vec::load(row + p * kNr).store(to);
        Vec::load(row + p * kNr + kLanes).store(to + kLanes);
      }
      for (; p < end; ++p, to += depth * kNr)
        for (int64_t j = 0; j < kNr; ++j) to[j] = p * kNr + j < n ? row[p * kNr + j] : 0.0f;
    }
  }
}

void pack(const float* b, int64_t row_stride, int64_t k, int64_t n, int64_t panel_begin, int64_t panel_end,
          float* packed) {
  pack_panels(b, row_stride, nullptr, k, n, k, panel_begin, panel_end, packed);
}

void pack_transposed(const float* b, int64_t row_stride, int64_t k, int64_t n, int64_t panel_begin,
                     int64_t panel_end, float* packed) {
  constexpr int64_t kDepth = 16;  // one cache line of each of the panel's rows at a time
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    const int64_t cols = n - p * kNr < kNr ? n - p * kNr : kNr;
    const float* from = b + p * kNr * row_stride;
    for (int64_t i0 = 0; i0 < k; i0 += kDepth) {
      const int64_t end = i0 + kDepth < k ? i0 + kDepth : k;
      for (int64_t i = i0; i < end; ++i) {
        float* to = packed + (p * k + i) * kNr;
        for (int64_t j = 0; j < cols; ++j) to[j] = from[j * row_stride + i];
        for (int64_t j = cols; j < kNr; ++j) to[j] = 0.0f;
      }
    }
  }
}

// x [rows, m] as tiles of kMr columns, [rows][kMr] each, kLeftTile floats apart, at most kKc rows. Whole vectors
// are stored; what they write too much is overwritten by the next row, or lies in the tile's tail.
constexpr int64_t kLeftTile = (kKc * kMr + kLanes + 15) / 16 * 16;

void pack_left(const float* x, int64_t ldx, const int32_t* x_rows, int64_t rows, int64_t m, float* packed) {
  static_assert(kMr <= kLanes);
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = gathered(x, ldx, x_rows, r);
    float* to = packed + r * kMr;
    const float* ahead = row_ahead(x, ldx, x_rows, r, rows);
    for (int64_t c = 0; c < m; c += 16) __builtin_prefetch(ahead + c);
    int64_t c = 0;
    for (; c + kLanes <= m; c += kMr, to += kLeftTile) Vec::load(row + c).store(to);
    for (; c < m; c += kMr, to += kLeftTile)
      Vec::load_n(row + c, static_cast<int>(m - c < kMr ? m - c : kMr)).store(to);
  }
}

}  // namespace
}  // namespace mudd::MUDD_ISA
