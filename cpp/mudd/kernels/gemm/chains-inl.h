// Tiles of a cache block at levels that compute a multiply-add in double (base/simd/chains.h): operands are
// converted once for all tiles that read them. At other levels an empty class. Built per level.
#pragma once

#include "mudd/base/simd/chains.h"
#include "mudd/kernels/gemm/unit-inl.h"

namespace mudd::MUDD_ISA {
namespace {

template <class Unit, int kPanels>
struct Chains {
  static constexpr bool kUsed = false;
};

#if defined(MUDD_CHAINS)
static_assert(kMr == kChainRows && kNr == kChainColumns && kKc == kChainDepth && kDepth == kChainDepth);

template <int kPanels>
struct Chains<F32Unit, kPanels> {
  static constexpr bool kUsed = true;

  void read_panel(int64_t panel, const float* b, int64_t k) {
    Right& to = right_[panel];
    to.exact[0] = to.exact[1] = {};
    for (int64_t i = 0; i < k; ++i, b += kNr) {
      write_right_step(b, i, to.numbers, &to.exact[0]);
      write_right_step(b + 4, i, to.numbers + 4, &to.exact[1]);
    }
  }
  void read_rows(int rows, const float* a, int64_t row_step, int64_t k) {
    if (credit_.spent()) return;
    exact_ = {};
    for (int r = 0; r < kMr; ++r) write_left_row(r < rows ? a + r * row_step : kNoRow, k, left_ + 2 * r, &exact_);
  }
  void read_columns(const float* a, int64_t k) {  // a tile of pack_left
    if (credit_.spent()) return;
    exact_ = {};
    for (int64_t i = 0; i < k; ++i) write_left_step(a + i * kMr, i, left_, &exact_);
  }

  // Compute a tile. Return true if its sums are now in `start`, from which its chains continue.
  bool sum(int rows, int64_t panel, int64_t k, Addend* start) {
    if (credit_.spent() || k == 0) return false;
    if (start->at && rows < kMr) *start = copy(rows, *start);
    const Right& b = right_[panel];
    if (!credit_.count(sum_tile(0, k, left_, exact_, b.numbers, b.exact, kNr, start->at, start->stride, sums_)))
      return false;
    *start = {sums_, kNr};
    return true;
  }

 private:
  static constexpr float kNoRow[kDepth] = {};
  struct Right {
    alignas(64) double numbers[kDepth * kRightStep];
    Steps exact[2];
  };

  Addend copy(int rows, Addend from) {
    for (int r = 0; r < kMr; ++r)
      for (int j = 0; j < kNr; ++j) some_[r * kNr + j] = r < rows ? from.at[r * from.stride + j] : 0.0f;
    return {some_, kNr};
  }

  TileCredit credit_;
  alignas(64) double left_[kDepth * kLeftStep];
  Steps exact_;
  Right right_[kPanels];
  alignas(64) float sums_[kTile], some_[kTile];
};
#endif

}  // namespace
}  // namespace mudd::MUDD_ISA
