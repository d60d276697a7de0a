// The register tile of gemm on the tile registers of AMX.
#pragma once

#include "mudd/base/simd/tiles.h"
#include "mudd/ops/gemm/dot-inl.h"

namespace mudd::MUDD_ISA {
namespace {

// kMr x kNr elements of C in four registers, A and B in two each.
static_assert(kMr == 2 * kTileRows && kNr == 2 * kTileWords);

MUDD_INLINE void load_sums(Tiles& t, const float* p, int64_t stride) {
  t.load<0>(p, stride);
  t.load<1>(p + kTileWords, stride);
  t.load<2>(p + kTileRows * stride, stride);
  t.load<3>(p + kTileRows * stride + kTileWords, stride);
}
MUDD_INLINE void store_sums(Tiles& t, float* p, int64_t stride) {
  t.store<0>(p, stride);
  t.store<1>(p + kTileWords, stride);
  t.store<2>(p + kTileRows * stride, stride);
  t.store<3>(p + kTileRows * stride + kTileWords, stride);
}

// As Micro (micro-inl.h): `rows` rows of A, kLeftStride words apart; what lies behind them is read and left out.
// kc is a multiple of kTileWords.
inline void tile_product(int rows, int64_t kc, const float* a, const float* b, const Ends& ends) {
  Tiles t;
  alignas(64) float edge[kMr * kNr];
  const auto each = [&](auto body) {
    for (int r = 0; r < rows; ++r)
      for (int j = 0; j < kNr; j += kLanes) body(r, j);
  };
  if (!ends.start.at) {
    t.zero<0>();
    t.zero<1>();
    t.zero<2>();
    t.zero<3>();
  } else if (rows == kMr) {
    load_sums(t, ends.start.at, ends.start.stride);
  } else {
    each([&](int r, int j) { Vec::load(ends.start.at + r * ends.start.stride + j).store(edge + r * kNr + j); });
    load_sums(t, edge, kNr);
  }
  Stream first = ends.fetch[0].or_at(b), second = ends.fetch[1].or_at(b);
  for (int64_t w = 0; w < kc; w += kTileWords) {
    for (int i = 0; i < kTileWords / 4; ++i) first.fetch(), second.fetch();
    t.load<6>(b + w * kNr, kNr);
    t.load<7>(b + w * kNr + kTileWords, kNr);
    t.load<4>(a + w, kLeftStride);
    t.dot<0, 4, 6>();
    t.dot<1, 4, 7>();
    if (rows <= kTileRows) continue;
    t.load<5>(a + kTileRows * kLeftStride + w, kLeftStride);
    t.dot<2, 5, 6>();
    t.dot<3, 5, 7>();
  }
  if (rows == kMr && ends.count == 0 && !ends.half) return store_sums(t, ends.c, ends.ldc);
  store_sums(t, edge, kNr);
  if (ends.half) {
    for (int r = 0; r < rows; ++r) DotStep::narrow(ends.half + r * ends.ldc, DotStep::read(edge + r * kNr));
    return;
  }
  each([&](int r, int j) {
    Vec v = Vec::load(edge + r * kNr + j);
    for (int64_t i = 0; i < ends.count; ++i)
      v = Vec::load(ends.addends[i].at + r * ends.addends[i].stride + j) + v;
    v.store(ends.c + r * ends.ldc + j);
  });
}

struct TileUnit : PairUnit {
  using Session = TileSession;
  static constexpr bool kVectors = false;  // one row too goes through the tiles: another order of sums would show
  static constexpr int64_t kDepthUnit = 2 * kTileWords;

  static bool in_place(ConstCells, int64_t, int64_t) { return false; }  // rows are read in words of 16
  static MUDD_INLINE void by_rows(int rows, int64_t kc, const float* a, int64_t, const float* b,
                                  const Ends& ends) {
    tile_product(rows, kc, a, b, ends);
  }
  static MUDD_INLINE void by_columns(int rows, int64_t kc, const float* a, const float* b, const Ends& ends) {
    tile_product(rows, kc, a, b, ends);
  }
};

}  // namespace
}  // namespace mudd::MUDD_ISA
