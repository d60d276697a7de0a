// Sizes, arguments and prefetches of the register tile. Built per level.
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
#elif defined(MUDD_VEC_AVX2) || defined(MUDD_VEC_NEON)
constexpr int kMr = 6;  // 12 accumulators, 2 of B, 1 of A: 15 of 16 registers, or of 16 pairs of registers (NEON)
#else
constexpr int kMr = 4;  // enough chains for the latency of a multiply-add in double (loop_doubles-inl.h)
#endif
constexpr int kLanes = Vec::kLanes;
constexpr int kNr = 2 * kLanes;
// Depths of a cache block, for weight gradients and for forward GEMMs: a panel of B then fits into L1. The unit
// is 32 bits, as in the loops over k of the micro-kernels: one element, or a pair with hardware bf16.
#if defined(MUDD_CHAINS)
constexpr int64_t kKc = kChainDepth, kDepth = kChainDepth;
#else
constexpr int64_t kKc = 256, kDepth = 512;
#endif
constexpr int64_t kTile = kMr * kNr;
// True if tiles of the same rows follow each other if B stays in L2. A panel of 32 columns is larger than L1
// and comes from L2 for every tile, so the rows may stay in L1 instead.
#if defined(MUDD_VEC_AVX512) || defined(MUDD_VEC_SIXTEEN)
constexpr bool kRowsFirst = true;
#else
constexpr bool kRowsFirst = false;
#endif
constexpr int64_t kLeftStride = kDepth + 16;  // in 32-bit units, between rows of a block of A

inline int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t panels(int64_t n) { return (n + kNr - 1) / kNr; }
inline int64_t tiles(int64_t m) { return (m + kMr - 1) / kMr; }
inline int64_t whole_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

struct Addend {  // no initializers, as in Ends: lists of them are created for every tile
  const float* at;
  int64_t stride;
};

// A range that a tile prefetches into L2 while it multiplies, `step` bytes every four k. A burst of prefetches
// would fill the buffers for cache misses and stall the loads of the tile.
struct Stream {
  const char* at = nullptr;
  int64_t step = 0;

  // The step that covers `bytes` in k iterations. It needs a division, so compute it once for many tiles.
  static int64_t step_of(int64_t bytes, int64_t k) { return k < 4 ? 0 : (bytes + k / 4 - 1) / (k / 4); }

  // A prefetch of address 0 would look up its page every time.
  Stream or_at(const void* p) const { return at ? *this : Stream{static_cast<const char*>(p), 0}; }
  MUDD_INLINE void fetch() {
    __builtin_prefetch(at, 0, 2);
    at += step;
  }
};

// Values that a loop in assembly loads once, by their offsets: with 24 sums, an asm statement has no room for them
// as operands.
struct Walk {
  const float* a;
  int64_t a_step;  // bytes from row to row, as sums_step
  const float* b;
  int64_t k;
  const float* sums;
  int64_t sums_step;
  Stream f, g;
};

// Prefetch [p, p + bytes) into L2 while the current tiles keep the multipliers busy.
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

// Rows that are copied later, prefetched piece by piece by the tiles that run before.
class RowsAhead {
 public:
  RowsAhead() = default;
  // Prefetch `rows` rows of `numbers` elements each, `stride` elements apart or listed in `list`, in `tiles`
  // pieces, one for each tile of depth k. A piece is at most one row.
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

// The start and the end of a tile's chains: c = last addend + ( ... + (first addend + ((start or 0) + the sum
// over k))). All addends are read before c is written; c may be one of them.
//
// Initialize all members at once: gcc fills the others with vector stores that straddle members. The tile then
// reads a member across two stores, and store forwarding fails (up to 80 cycles).
struct Ends {
  Addend start;  // at: null for zeros
  const Addend* addends;
  int64_t count;
  float* c;
  int64_t ldc;
  bf16* half;  // instead of c, ldc elements between rows; or null
  Stream fetch[2];
};

struct Pair {
  Vec lo, hi;
};

}  // namespace
}  // namespace mudd::MUDD_ISA
