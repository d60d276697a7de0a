// Packing of operands (layouts: gemm.h). Built per level.
#pragma once

#include "mudd/base/simd/transpose.h"
#include "mudd/kernels/gemm/unit-inl.h"

namespace mudd::MUDD_ISA {
namespace {

template <class From>
constexpr int64_t kLine = 64 / sizeof(From);  // elements of a cache line

// Panels are packed in groups: rows are read in runs of some cache lines, and there are few write streams,
// whose distance is often a multiple of 4 KiB. The rows are pages apart, so the hardware does not prefetch
// them.
constexpr int64_t kGroup = kNr < 16 ? 8 : 4, kRowsAhead = 16;
constexpr int64_t kAhead = 128;  // floats of a row, during a transposition

// Return row i of a matrix, or its row rows[i] if `rows` is set.
template <class From>
inline From gathered(From b, int64_t stride, const int32_t* rows, int64_t i) {
  return b + (rows ? static_cast<int64_t>(rows[i]) : i) * stride;
}

// Return the row to prefetch while row i of k is packed; none after the end of a list.
template <class From>
inline From row_ahead(From b, int64_t stride, const int32_t* rows, int64_t i, int64_t k) {
  return gathered(b, stride, rows, rows && i + kRowsAhead >= k ? i : i + kRowsAhead);
}

// The kPer rows that form packed row i of k; null after the last.
template <class As, class From>
struct RowsOf {
  const From* of[As::kPer];

  RowsOf(const From* b, int64_t stride, const int32_t* rows, int64_t i, int64_t k) {
    for (int p = 0; p < As::kPer; ++p)
      of[p] = i * As::kPer + p < k ? gathered(b, stride, rows, i * As::kPer + p) : nullptr;
  }
};

// Prefetch columns [from, to) of the rows that are packed a little later than packed row i.
template <class As, class From>
MUDD_INLINE void fetch_rows(const From* b, int64_t stride, const int32_t* rows, int64_t i, int64_t k, int64_t from,
                            int64_t to) {
  for (int64_t r = i * As::kPer; r < (i + 1) * As::kPer; ++r) {
    const From* ahead = row_ahead(b, stride, rows, at_most(r, k - 1), k);
    for (int64_t c = from; c < to; c += kLine<From>) __builtin_prefetch(ahead + c);
  }
}

// Pack panels [panel_begin, panel_end) of b[k, n]. rows: as in gathered().
template <class Unit, class From>
void pack_panels(const From* b, int64_t row_stride, const int32_t* rows, int64_t k, int64_t n, int64_t panel_begin,
                 int64_t panel_end, float* packed) {
  using As = typename Unit::Packed;
  constexpr int64_t kRow = Unit::Step::kRow;
  const int64_t depth = words<Unit>(k);
  for (int64_t group = panel_begin; group < panel_end; group += kGroup) {
    const int64_t end = at_most(group + kGroup, panel_end), full = at_most(n / kNr, end);
    for (int64_t i = 0; i < depth; ++i) {
      const RowsOf<As, From> from(b, row_stride, rows, i, k);
      fetch_rows<As>(b, row_stride, rows, i, k, group * kNr, end * kNr);
      float* to = packed + (group * depth + i) * kRow;
      int64_t p = group;
      for (; p < full; ++p, to += depth * kRow) As::panel(to, from.of, p * kNr, kNr);
      for (; p < end; ++p, to += depth * kRow) As::panel(to, from.of, p * kNr, n - p * kNr);
    }
  }
}

template <class Unit>
void pack(const float* b, int64_t row_stride, int64_t k, int64_t n, int64_t panel_begin, int64_t panel_end,
          void* packed) {
  pack_panels<Unit>(b, row_stride, nullptr, k, n, panel_begin, panel_end, static_cast<float*>(packed));
}

// Transpose kLanes x kLanes elements of rows `row_stride` apart to rows kNr apart.
MUDD_INLINE void transpose_block(const float* from, int64_t row_stride, float* to) {
  Vec r[kLanes];
#pragma GCC unroll 16
  for (int j = 0; j < kLanes; ++j) {
    r[j] = Vec::load(from + j * row_stride);
    __builtin_prefetch(from + j * row_stride + kAhead);
  }
  transpose(r);
#pragma GCC unroll 16
  for (int j = 0; j < kLanes; ++j) r[j].store(to + j * kNr);
}

template <class Unit>
void pack_transposed(const float* b, int64_t row_stride, int64_t k, int64_t n, int64_t panel_begin,
                     int64_t panel_end, void* packed) {
  using As = typename Unit::Packed;
  constexpr int64_t kDepth = 16;  // one cache line of each row of the panel at a time
  const int64_t depth = words<Unit>(k);
  static_assert(kDepth % kLanes == 0);
  alignas(64) float lines[kDepth][kNr];
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    const int64_t cols = at_most(n - p * kNr, kNr);
    const float* from = b + p * kNr * row_stride;
    for (int64_t i0 = 0; i0 < depth * As::kPer; i0 += kDepth) {
      const int64_t count = at_most(kDepth, k - i0);
      if (count == kDepth && cols == kNr) {
        for (int64_t j = 0; j < kNr; j += kLanes)
          for (int64_t i = 0; i < kDepth; i += kLanes)
            transpose_block(from + j * row_stride + i0 + i, row_stride, lines[i] + j);
      } else {
        for (int64_t i = 0; i < kDepth; ++i)
          for (int64_t j = 0; j < kNr; ++j)
            lines[i][j] = i < count && j < cols ? from[j * row_stride + i0 + i] : 0.0f;
      }
      for (int64_t i = 0; i < kDepth && i0 + i < depth * As::kPer; i += As::kPer) {
        const float* rows[] = {lines[i], lines[(i + 1) % kDepth]};
        As::panel(static_cast<float*>(packed) + (p * depth + (i0 + i) / As::kPer) * Unit::Step::kRow, rows, 0,
                  kNr);
      }
    }
  }
}

}  // namespace
}  // namespace mudd::MUDD_ISA
