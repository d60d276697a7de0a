// Sizes of the register tile, what it is given, and what it fetches on the way. Built per level.
#pragma once

#include "mudd/base/simd/bf16.h"
#include "mudd/base/simd/chains.h"
#include "mudd/base/simd/inline.h"

namespace mudd::MUDD_ISA {
namespace {

#if defined(MUDD_GEMM_TILES)
constexpr int kMr = 32;  // two by two tile registers of 16 x 16
#elif defined(MUDD_VEC_AVX512) || defined(MUDD_VEC_SIXTEEN)
constexpr int kMr = 12;  // 24 accumulators, 2 of B, 1 of A: 27 of 32 registers
#elif defined(MUDD_VEC_AVX2)
constexpr int kMr = 6;  // 12 accumulators, 2 of B, 1 of A: 15 of 16 registers
#else
constexpr int kMr = 4;  // enough chains for the latency of a multiply-add in double (loop_doubles-inl.h)
#endif
constexpr int kLanes = Vec::kLanes;
constexpr int kNr = 2 * kLanes;
// Depths of a cache block, of weight gradients and of forward GEMMs: a panel of B then fits L1. Counted in words
// of 32 bits, as the micro-kernels count k: a number, or with bf16 units a pair of them.
#if defined(MUDD_CHAINS)
constexpr int64_t kKc = kChainDepth, kDepth = kChainDepth;
#else
constexpr int64_t kKc = 256, kDepth = 512;
#endif
constexpr int64_t kTile = kMr * kNr;
// Whether tiles of the same rows follow each other where B stays in L2: a panel of 32 columns is more than L1
// holds and comes from L2 for every tile, so it may as well be the rows that stay in L1.
#if defined(MUDD_VEC_AVX512) || defined(MUDD_VEC_SIXTEEN)
constexpr bool kRowsFirst = true;
#else
constexpr bool kRowsFirst = false;
#endif
constexpr int64_t kLeftStride = kDepth + 16;  // words from row to row of a block of A

inline int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t panels(int64_t n) { return (n + kNr - 1) / kNr; }
inline int64_t tiles(int64_t m) { return (m + kMr - 1) / kMr; }
inline int64_t whole_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

struct Addend {  // no initial values, as Ends: lists of them are made once a tile
  const float* at;
  int64_t stride;
};

// What a tile fetches into L2 while it multiplies: `step` bytes further every four k. A burst of fetches would
// fill the buffers for misses and hold up the loads of the tile itself.
struct Stream {
  const char* at = nullptr;
  int64_t step = 0;

  // The step that passes `bytes` in k turns. A division: once for many tiles.
  static int64_t step_of(int64_t bytes, int64_t k) { return k < 4 ? 0 : (bytes + k / 4 - 1) / (k / 4); }

  // Fetching from nowhere would look for its page every time.
  Stream or_at(const void* p) const { return at ? *this : Stream{static_cast<const char*>(p), 0}; }
  MUDD_INLINE void fetch() {
    __builtin_prefetch(at, 0, 2);
    at += step;
  }
};

// Fetches [p, p + bytes) into L2 while the tiles at work keep the multipliers busy.
MUDD_INLINE void fetch_ahead(const void* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(p) + i, 0, 2);
}

// Equal parts of memory to prefetch, one for each tile of depth k. With few tiles, integer division would skip
// cache lines, so prefetch the whole range at once.
class Shares {
 public:
  Shares(int64_t bytes, int64_t k)
      : bytes_(bytes), step_(Stream::step_of(bytes, k)), streams_(bytes <= 64 * (k / 4)) {}

  MUDD_INLINE Stream of(const void* memory, int64_t tile) const {
    const char* p = static_cast<const char*>(memory) + tile * bytes_;
    if (streams_) return {p, step_};
    fetch_ahead(p, bytes_);
    return {};
  }

 private:
  int64_t bytes_, step_;
  bool streams_;
};

// Rows that are copied later, in pieces for the tiles before.
class RowsAhead {
 public:
  RowsAhead() = default;
  // `numbers` numbers of `rows` rows, which lie `stride` numbers apart or are listed in `list`; at most one row
  // for each of `tiles` pieces, the tiles of depth k.
  RowsAhead(ConstCells first, int64_t stride, const int32_t* list, int64_t rows, int64_t numbers, int64_t tiles,
            int64_t k)
      : first_(static_cast<const char*>(first.data)), list_(list), rows_(rows) {
    const int64_t size = first.type == DType::bf16 ? 2 : 4;
    stride_ = stride * size;
    width_ = numbers * size;
    piece_ = whole_lines(width_ / (tiles > rows && rows > 0 ? tiles / rows : 1));
    step_ = Stream::step_of(at_most(piece_, width_), k);
  }

  MUDD_INLINE Stream piece() {
    if (row_ >= rows_) return {};
    const char* row = first_ + (list_ ? static_cast<int64_t>(list_[row_]) : row_) * stride_;
    const Stream piece{row + at_, step_};
    at_ += piece_;
    if (at_ < width_) return piece;
    at_ = 0;
    ++row_;
    return piece;
  }

 private:
  const char* first_ = nullptr;
  const int32_t* list_ = nullptr;
  int64_t rows_ = 0, row_ = 0, at_ = 0, piece_ = 0, step_ = 0, width_ = 0, stride_ = 0;
};

// Where a tile's chains start and end: c = last addend + ( ... + (first addend + ((start or 0) + the sum over
// k))). All addends are read before c is written, which may be one of them.
//
// Made with all of its members at once: gcc fills what is left out with vectors that straddle members, and the
// tile, which reads a member of them, then waits until every store before has left for the cache (up to 80
// cycles).
struct Ends {
  Addend start;  // at: null for zeros
  const Addend* addends;
  int64_t count;
  float* c;
  int64_t ldc;
  bf16* half;  // in place of c, ldc numbers between rows; or null
  Stream fetch[2];
};

struct Pair {
  Vec lo, hi;
};

}  // namespace
}  // namespace mudd::MUDD_ISA
