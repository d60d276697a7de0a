// The register tile of gemm on the tile registers of AMX (or their emulation), and its unit.
#pragma once

#include "mudd/base/simd/tiles.h"
#include "mudd/kernels/gemm/dot-inl.h"

namespace mudd::MUDD_ISA {
namespace {

// kMr x kNr elements of C in four registers, A and B in two each.
static_assert(kMr == 2 * kTileRows && kNr == 2 * kTileWords);

// `rows` rows of sums; a register is loaded whole, so fewer than all go through `scratch`.
inline void load_rows(Tiles& t, Addend from, int rows, float* scratch) {
  if (rows == kMr || from.at == scratch) return load_sums(t, from.at, from.stride);
  for (int r = 0; r < rows; ++r)
    __builtin_memcpy(scratch + r * kNr, from.at + r * from.stride, kNr * sizeof(float));
  load_sums(t, scratch, kNr);
}

// kMr rows of A: those of a register lie row_step words apart, its next words depth_step words on.
struct LeftRows {
  const float* at;
  int64_t row_step, depth_step;
};

// C += A B over kc words, a multiple of kTileWords. Of A the registers that hold one of `rows` rows are read, and
// rows behind the last of them are left out where C is stored. beside() is called once a step of kTileWords: the
// products leave the vector units and most ports of memory idle, but what it does must be short, or the loads of
// the next steps do not start in time.
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
