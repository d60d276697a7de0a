// C = A B on tile registers. Rows of A pass all of B, which lies in L2; both come from there, so a tile may be as
// deep as k unless rows have to be copied. Built for the levels amx_bf16 and emu_amx_bf16.
#pragma once

#include "mudd/ops/gemm/multiply-inl.h"
#include "mudd/ops/gemm/tile_beside-inl.h"

namespace mudd::MUDD_ISA {
namespace {

class TileProduct {
 public:
  explicit TileProduct(const GemmBlock& g) : g_(g) {}

  void run() {
    for (int64_t r = 0; r < g_.m; r += kMr) rows_from(r, static_cast<int>(at_most(kMr, g_.m - r)));
    leaving_.store(kMr);
  }

 private:
  // Rows that lie as the registers read them: pairs are words already, whole registers of them both ways.
  bool in_place(int rows) const {
    return !g_.a_rows && rows % kTileRows == 0 && g_.k % TileUnit::kDepthUnit == 0 &&
           TileUnit::in_place(g_.a, g_.lda, g_.k);
  }

  LeftRows copied(int64_t r, int rows, int64_t w0, int64_t kc) {
    const int64_t k0 = w0 * TileUnit::Packed::kPer, numbers = at_most(kc * TileUnit::Packed::kPer, g_.k - k0);
    for (int i = 0; i < rows; ++i)
      TileUnit::copy_row(row_of(g_, r + i) + k0, numbers, kc, left_ + i * kLeftStride);
    return {left_, kLeftStride, kTileWords};
  }

  void rows_from(int64_t r, int rows) {
    const bool as_is = in_place(rows);
    const int64_t deepest = as_is ? depth_ : at_most(kDepth, depth_);
    next_rows(r + kMr);
    const int64_t width = deepest == depth_ ? g_.n : kNc;  // in pieces of k: as many columns as sums can wait
    for (int64_t j0 = 0; j0 < g_.n; j0 += width) {
      const int64_t end = at_most(j0 + width, g_.n);
      int64_t w0 = 0;
      do {  // at least once: k = 0 still has an epilogue
        const int64_t kc = at_most(deepest, depth_ - w0);
        const LeftRows a = as_is ? LeftRows{static_cast<const float*>(row_of(g_, r).data),
                                            g_.lda / TileUnit::Packed::kPer, kTileWords}
                                 : copied(r, rows, w0, kc);
        for (int64_t j = j0; j < end; j += kNr) tile(r, rows, j, a, w0, kc, partial_ + (j - j0));
        w0 += kc;
      } while (w0 < depth_);
    }
  }

  // Rows of A that are multiplied after these, while these are: where they lie one behind the other.
  void next_rows(int64_t r) {
    const int64_t rows = at_most(kMr, g_.m - r), steps = depth_ / kTileWords;
    each_ = steps ? static_cast<int>((kMr + steps - 1) / steps) : kMr;
    a_ = {};
    if (rows <= 0 || g_.a_rows || g_.lda != g_.k || steps == 0) return;
    const int64_t lines = rows * g_.k * (g_.a.type == DType::bf16 ? 2 : 4) / 64, all = panels(g_.n) * steps;
    a_ = {static_cast<const char*>(row_of(g_, r).data), 64, static_cast<int>(lines)};
    a_each_ = static_cast<int>((lines + all - 1) / all);
  }

  // Multiplies, and meanwhile stores the tile before and fetches what the one behind needs: in these rows, or the
  // first one of the next.
  void products(int64_t r, int rows, int64_t j, LeftRows a, const float* b, int64_t kc) {
    const Epilogue& e = g_.epilogue;
    j += kNr;
    if (j >= g_.n) j = 0, r += kMr;
    const int64_t ahead = at_most(kMr, g_.m - r);
    Fetch<1> c;
    Fetch<0> residual;
    if (ahead > 0) c = c.rows_of(g_.c + (r * g_.ldc + j), g_.ldc, ahead);
    if (ahead > 0 && e.residual)
      residual = residual.rows_of(e.residual + (r * e.residual_stride + j), e.residual_stride, ahead);
    Leaving leaving = leaving_;
    Fetch<0> next = a_;
    const int each = each_, a_each = a_each_;
    add_products(t_, rows, kc, a, b, [&]() __attribute__((always_inline)) {
      leaving.store(each);
      c.fetch(each);
      residual.fetch(each);
      next.fetch(a_each);
    });
    leaving.store(kMr);
    leaving_.rows = 0;
    a_ = next;
  }

  void tile(int64_t r, int rows, int64_t j, LeftRows a, int64_t w0, int64_t kc, float* partial) {
    const float* b = static_cast<const float*>(g_.b) + (j / kNr * depth_ + w0) * kNr;
    const int cols = static_cast<int>(at_most(kNr, g_.n - j));
    const Cells c = g_.c + (r * g_.ldc + j);
    float* room = rooms_[turn_];
    if (w0 > 0) load_sums(t_, partial, kNc);
    else if (g_.accumulate) load_rows(t_, from(c, g_.ldc, rows, cols, room), rows, room);
    else zero_sums(t_);
    products(r, rows, j, a, b, kc);
    if (w0 + kc < depth_) return store_sums(t_, partial, kNc);
    const bool whole = rows == kMr && cols == kNr;
    if (whole && sums_only_ && g_.c.type == DType::f32) return store_sums(t_, c.f32(), g_.ldc);
    store_sums(t_, room, kNr);
    const Epilogue& e = g_.epilogue;
    const bool half = sums_only_ && g_.c.type == DType::bf16;
    if (half && cols < kNr) return narrow_tile<DotStep>(g_, room, r, j, rows, cols);
    if (!half && !(adds_ && cols == kNr)) return finish_tile(g_, room, r, j, rows, cols);
    leaving_ = {.sums = room, .ld = g_.ldc, .residual_ld = e.residual_stride, .rows = rows};
    if (half) leaving_.half = c.b16();
    else leaving_.full = c.f32(), leaving_.residual = e.residual.f32() + r * e.residual_stride + j;
    turn_ ^= 1;
  }

  const GemmBlock& g_;
  const int64_t depth_ = words<TileUnit>(g_.k);
  const bool sums_only_ = sum_only(g_.epilogue) && !g_.epilogue.residual;
  // C is the sums and a residual, both fp32.
  const bool adds_ = sum_only(g_.epilogue) && g_.epilogue.residual && g_.epilogue.residual.type == DType::f32 &&
                     g_.c.type == DType::f32;
  [[maybe_unused]] const TileSession session_{};
  Tiles t_;
  Leaving leaving_;
  Fetch<0> a_;
  int each_ = 0, a_each_ = 0;  // rows of a tile, and lines of a_, a step
  int turn_ = 0;
  alignas(64) float rooms_[2][kTile], left_[kMr * kLeftStride], partial_[kMr * kNc];
};

inline void tile_multiply(const GemmBlock& g) { TileProduct(g).run(); }

}  // namespace
}  // namespace mudd::MUDD_ISA
