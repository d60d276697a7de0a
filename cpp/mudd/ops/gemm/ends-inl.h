// Sizes of the register tile, what it is given, and what it fetches on the way. Built per level.
#pragma once

#include "mudd/base/simd/bf16.h"
#include "mudd/base/simd/inline.h"

namespace mudd::MUDD_ISA {
namespace {

#if defined(MUDD_GEMM_TILES)
constexpr int kMr = 32;  // two by two tile registers of 16 x 16
#elif defined(MUDD_VEC_AVX512) || defined(MUDD_VEC_EMU16)
constexpr int kMr = 12;  // 24 accumulators, 2 of B, 1 of A: 27 of 32 registers
#elif defined(MUDD_VEC_AVX2)
constexpr int kMr = 6;  // 12 accumulators, 2 of B, 1 of A: 15 of 16 registers
#else
constexpr int kMr = 2;  // a portable Vec is two or more registers of the baseline
#endif
constexpr int kLanes = Vec::kLanes;
constexpr int kNr = 2 * kLanes;
// Depths of a cache block, of weight gradients and of products: a panel of B then fits L1. Counted in words of 32
// bits, as the micro-kernels count k: a number, or with bf16 units a pair of them.
constexpr int64_t kKc = 256, kDepth = 512;
constexpr int64_t kLeftStride = kDepth + 16;  // words from row to row of a block of A

inline int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

struct Addend {  // no initial values: lists of them are made once a tile
  const float* at;
  int64_t stride;
};

// What a tile fetches into L2 while it multiplies: `step` bytes further every four k. A burst of fetches would
// fill the buffers for misses and hold up the loads of the tile itself.
struct Stream {
  const char* at = nullptr;
  int64_t step = 0;

  Stream() = default;
  Stream(const void* from, int64_t bytes, int64_t k)
      : at(static_cast<const char*>(from)), step(k < 4 ? 0 : (bytes + k / 4 - 1) / (k / 4)) {}

  // Fetching from nowhere would look for its page every time.
  Stream or_at(const void* p) const { return at ? *this : Stream(p, 0, 0); }
  MUDD_INLINE void fetch() {
    __builtin_prefetch(at, 0, 2);
    at += step;
  }
};

// Fetches [p, p + bytes) into L2 while the tiles at work keep the multipliers busy.
MUDD_INLINE void fetch_ahead(const void* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(p) + i, 0, 2);
}

// The stream for one of few tiles, whose share would leave out lines: then all of it at once.
MUDD_INLINE Stream share_of(const void* p, int64_t bytes, int64_t k) {
  if (bytes <= 64 * (k / 4)) return {p, bytes, k};
  fetch_ahead(p, bytes);
  return {};
}

// Rows that are copied later, in pieces for the tiles before.
class RowsAhead {
 public:
  RowsAhead() = default;
  // `numbers` numbers of `rows` rows, which lie `stride` numbers apart or are listed in `list`; at most one row
  // for each of `tiles` pieces.
  RowsAhead(ConstCells first, int64_t stride, const int32_t* list, int64_t rows, int64_t numbers, int64_t tiles)
      : first_(static_cast<const char*>(first.data)), list_(list), rows_(rows) {
    const int64_t size = first.type == DType::bf16 ? 2 : 4;
    stride_ = stride * size;
    width_ = numbers * size;
    piece_ = (width_ / (tiles > rows && rows > 0 ? tiles / rows : 1) + 63) / 64 * 64;
  }

  MUDD_INLINE Stream piece(int64_t k) {
    if (row_ >= rows_) return {};
    const char* row = first_ + (list_ ? static_cast<int64_t>(list_[row_]) : row_) * stride_;
    const Stream piece(row + at_, at_most(piece_, width_ - at_), k);
    at_ += piece_;
    if (at_ < width_) return piece;
    at_ = 0;
    ++row_;
    return piece;
  }

 private:
  const char* first_ = nullptr;
  const int32_t* list_ = nullptr;
  int64_t rows_ = 0, row_ = 0, at_ = 0, piece_ = 0, width_ = 0, stride_ = 0;
};

// Where a tile's chains start and end: c = last addend + ( ... + (first addend + ((start or 0) + the sum over
// k))). All addends are read before c is written, which may be one of them.
struct Ends {
  const float* start = nullptr;
  int64_t start_stride = 0;
  const Addend* addends = nullptr;
  int count = 0;
  float* c = nullptr;
  int64_t ldc = 0;
  bf16* half = nullptr;  // in place of c, ldc numbers between rows
  Stream fetch[2] = {};
};

struct Pair {
  Vec lo, hi;
};

}  // namespace
}  // namespace mudd::MUDD_ISA
