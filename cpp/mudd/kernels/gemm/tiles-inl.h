// The register tile of gemm on AMX tile registers (or their emulation), and its unit.
#pragma once

#include "mudd/base/simd/tiles.h"
#include "mudd/kernels/gemm/dot-inl.h"

namespace mudd::MUDD_ISA {
namespace {

// kMr x kNr elements of C in four registers, A and B in two each.
static_assert(kMr == 2 * kTileRows && kNr == 2 * kTileWords);

// Load `rows` rows of sums. A register is loaded completely, so a partial tile goes through `scratch`.
inline void load_rows(Tiles& t, Addend from, int rows, float* scratch) {
  if (rows == kMr || from.at == scratch) return load_sums(t, from.at, from.stride);
  for (int r = 0; r < rows; ++r)
    __builtin_memcpy(scratch + r * kNr, from.at + r * from.stride, kNr * sizeof(float));
  load_sums(t, scratch, kNr);
}

// kMr rows of A: rows of a register are row_step floats apart, its next columns depth_step floats.
struct LeftRows {
  const float* at;
  int64_t row_step, depth_step;
};

// Add A B over kc units of 32 bits, a multiple of kTileWords, to C. Only the registers of A with one of `rows`
// rows are loaded; the caller ignores later rows of C. beside() is called once a step of kTileWords: the tile
// multiplications leave the vector units and most memory ports idle. It must be short, or the loads of the next
// steps start late.
template <class Work>
MUDD_INLINE void add_products(Tiles& t, int rows, int64_t kc, LeftRows a, const float* b, Work beside) {
  for (int64_t w = 0; w < kc; w += kTileWords, a.at += a.depth_step, b += kTileWords * kNr) {
    t.load<6>(b, kNr);
    t.load<4>(a.at, a.row_step);
    t.dot<0, 4, 6>();
    t.load<7>(b + kTileWords, kNr);
    t.dot<1, 4, 7>();
    beside();
    if (rows <= kTileRows) continue;
    t.load<5>(a.at + kTileRows * a.row_step, a.row_step);
    t.dot<2, 5, 6>();
    t.dot<3, 5, 7>();
  }
}

struct TileUnit : PairUnit {
  static constexpr int64_t kDepthUnit = 2 * kTileWords;
};

}  // namespace
}  // namespace mudd::MUDD_ISA
