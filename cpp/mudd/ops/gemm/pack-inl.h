// Packing of operands (layouts: gemm.h). Built per level.
#pragma once

#include "mudd/ops/gemm/micro-inl.h"

namespace mudd::MUDD_ISA {
namespace {

void pack(const float* b, int64_t row_stride, int64_t k, int64_t n, int64_t panel_begin, int64_t panel_end,
          float* packed) {
  // Rows outer: each row of B is read once from left to right, panels are as many write streams.
  const int64_t first = panel_begin * kNr, full = (n < panel_end * kNr ? n : panel_end * kNr) / kNr;
  for (int64_t i = 0; i < k; ++i) {
    const float* row = b + i * row_stride;
    float* to = packed + first * k + i * kNr;
    for (int64_t p = panel_begin; p < full; ++p, to += k * kNr) {
      Vec::load(row + p * kNr).store(to);
      Vec::load(row + p * kNr + kLanes).store(to + kLanes);
    }
    for (int64_t p = full > panel_begin ? full : panel_begin; p < panel_end; ++p, to += k * kNr)
      for (int64_t j = 0; j < kNr; ++j) to[j] = p * kNr + j < n ? row[p * kNr + j] : 0.0f;
  }
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

// x [rows, m] as tiles of kMr columns, [rows][kMr] each. Whole vectors are stored; what they write too much
// is overwritten by the next row, or lies in the tile's tail.
int64_t left_tile(int64_t rows) { return (rows * kMr + kLanes + 15) / 16 * 16; }

void pack_left(const float* x, int64_t ldx, int64_t rows, int64_t m, int64_t tile_begin, int64_t tile_end,
               float* packed) {
  static_assert(kMr <= kLanes);
  const int64_t step = left_tile(rows);
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * ldx;
    float* to = packed + tile_begin * step + r * kMr;
    for (int64_t t = tile_begin; t < tile_end; ++t, to += step) {
      const int64_t left = m - t * kMr;
      if (left >= kLanes) Vec::load(row + t * kMr).store(to);
      else Vec::load_n(row + t * kMr, static_cast<int>(left < kMr ? left : kMr)).store(to);
    }
  }
}

}  // namespace
}  // namespace mudd::MUDD_ISA
