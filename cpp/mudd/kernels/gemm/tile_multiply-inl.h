// C = A B on AMX tile registers. Rows of A pass all of B, which is in L2. Both are read from L2, so a tile may
// be as deep as k unless rows have to be copied. Built for the levels amx_bf16 and emu_amx_bf16.
#pragma once

#include "mudd/kernels/gemm/multiply-inl.h"
#include "mudd/kernels/gemm/tile_beside-inl.h"

namespace mudd::MUDD_ISA {
namespace {

// Inlined completely, so that the state of a tile is in registers. Members that are stored one by one and
// loaded together would break store forwarding and wait for the stores of the tile before.
class TileProduct {
 public:
  explicit TileProduct(const GemmBlock& g) : g_(g) {}

  void run() {
    if (g_.n == 0) return;
    Leaving leaving;
    for (int64_t r = 0; r < g_.m; r += kMr) rows_from(r, static_cast<int>(at_most(kMr, g_.m - r)), leaving);
    leaving.store(kMr);
  }

 private:
  // Return true if the tile registers can load these rows in place: whole registers of bf16 pairs in both
  // directions.
  bool in_place(int rows) const {
    return !g_.a_rows && rows % kTileRows == 0 && g_.k % TileUnit::kDepthUnit == 0 &&
           TileUnit::in_place(g_.a, g_.lda, g_.k);
  }

  void copy(int64_t r, int rows, int64_t w0, int64_t kc) {
    const int64_t k0 = w0 * TileUnit::Packed::kPer, numbers = at_most(kc * TileUnit::Packed::kPer, g_.k - k0);
    for (int i = 0; i < rows; ++i)
      TileUnit::copy_row(row_of(g_, r + i) + k0, numbers, kc, left_ + i * kLeftStride);
  }

  MUDD_INLINE void rows_from(int64_t r, int rows, Leaving& leaving) {
    const bool as_is = in_place(rows);
    const int64_t deepest = as_is ? depth_ : at_most(kDepth, depth_);
    const int64_t width = deepest == depth_ ? g_.n : kNc;  // in pieces of k: as many columns as sums can wait
    const float* a = as_is ? static_cast<const float*>(row_of(g_, r).data) : left_;
    const int64_t row_step = as_is ? g_.lda / TileUnit::Packed::kPer : kLeftStride;
    Fetch<0> next = next_rows(r + kMr);
    const int64_t all = panels(g_.n) * (depth_ / kTileWords);
    const int next_each = next.left ? static_cast<int>((next.left + all - 1) / all) : 0;
    for (int64_t j0 = 0; j0 < g_.n; j0 += width) {
      const int64_t end = at_most(j0 + width, g_.n);
      int64_t w0 = 0;
      do {  // at least once: k = 0 still has an epilogue
        const int64_t kc = at_most(deepest, depth_ - w0);
        if (!as_is) copy(r, rows, w0, kc);
        for (int64_t j = j0; j < end; j += kNr) {
          start(r, rows, j, w0, partial_ + (j - j0));
          products(r, rows, j, w0, kc, {a, row_step, kTileWords}, leaving, next, next_each);
          finish(r, rows, j, w0 + kc == depth_, partial_ + (j - j0), leaving);
        }
        w0 += kc;
      } while (w0 < depth_);
    }
  }

  // Return the prefetch of the next rows of A, if all rows are contiguous.
  Fetch<0> next_rows(int64_t r) const {
    const int64_t rows = at_most(kMr, g_.m - r);
    if (rows <= 0 || g_.a_rows || g_.lda != g_.k || depth_ == 0) return {};
    const int64_t bytes = rows * g_.k * (g_.a.type == DType::bf16 ? 2 : 4);
    return {static_cast<const char*>(row_of(g_, r).data), 64, static_cast<int>(bytes / 64)};
  }

  MUDD_INLINE void start(int64_t r, int rows, int64_t j, int64_t w0, const float* partial) {
    float* sums = scratch_[turn_];
    if (w0 > 0) return load_sums(t_, partial, kNc);
    const int cols = static_cast<int>(at_most(kNr, g_.n - j));
    const Addend from = chain_start(g_, r, j, rows, cols, sums);
    if (!from.at) return zero_sums(t_);
    load_rows(t_, from, rows, sums);
  }

  // Multiply; meanwhile store the finished tile and prefetch for the next one, in these rows or the first one
  // of the next rows.
  MUDD_INLINE void products(int64_t r, int rows, int64_t j, int64_t w0, int64_t kc, LeftRows a, Leaving& leaving,
                            Fetch<0>& next, int next_each) {
    const float* b = static_cast<const float*>(g_.b) + (j / kNr * depth_ + w0) * kNr;
    const Epilogue& e = g_.epilogue;
    j += kNr;
    if (j >= g_.n) j = 0, r += kMr;
    const int64_t ahead = at_most(kMr, g_.m - r);
    Fetch<1> c;
    Fetch<0> residual;
    if (ahead > 0) c = Fetch<1>::rows_of(g_.c + (r * g_.ldc + j), g_.ldc, ahead);
    if (ahead > 0 && e.residual)
      residual = Fetch<0>::rows_of(e.residual + (r * e.residual_stride + j), e.residual_stride, ahead);
    const int each = each_;
    add_products(t_, rows, kc, a, b, [&]() __attribute__((always_inline)) {
      leaving.store(each);
      c.fetch(each);
      residual.fetch(each);
      next.fetch(next_each);
    });
    leaving.store(kMr);
  }

  MUDD_INLINE void finish(int64_t r, int rows, int64_t j, bool last, float* partial, Leaving& leaving) {
    if (!last) return store_sums(t_, partial, kNc);
    const int cols = static_cast<int>(at_most(kNr, g_.n - j));
    const Cells c = g_.c + (r * g_.ldc + j);
    if (rows == kMr && cols == kNr && sums_only_ && !half_) return store_sums(t_, c.f32(), g_.ldc);
    float* sums = scratch_[turn_];
    store_sums(t_, sums, kNr);
    if (half_ && cols < kNr) return narrow_tile<DotStep>(g_, sums, r, j, rows, cols);
    if (!half_ && !(adds_ && cols == kNr)) return finish_tile(g_, sums, r, j, rows, cols);
    leaving.sums = sums;
    leaving.ld = g_.ldc;
    leaving.rows = rows;
    if (half_) {
      leaving.half = c.b16();
    } else {
      leaving.full = c.f32();
      leaving.residual = g_.epilogue.residual.f32() + r * g_.epilogue.residual_stride + j;
      leaving.residual_ld = g_.epilogue.residual_stride;
    }
    turn_ ^= 1;
  }

  const GemmBlock& g_;
  const int64_t depth_ = words<TileUnit>(g_.k);
  const bool sums_only_ = sum_only(g_.epilogue) && !g_.epilogue.residual;
  const bool half_ = sums_only_ && g_.c.type == DType::bf16;
  // C is the sum plus a residual, both fp32.
  const bool adds_ = sum_only(g_.epilogue) && g_.epilogue.residual && g_.epilogue.residual.type == DType::f32 &&
                     g_.c.type == DType::f32;
  // Rows of a tile for each step.
  const int each_ = depth_ ? static_cast<int>((kMr * kTileWords + depth_ - 1) / depth_) : kMr;
  [[maybe_unused]] const TileSession session_{};
  Tiles t_;
  int turn_ = 0;
  alignas(64) float scratch_[2][kTile], left_[kMr * kLeftStride], partial_[kMr * kNc];
};

// A single row uses the tiles too: another order of sums would change bits.
inline void tile_multiply(const GemmBlock& g) { TileProduct(g).run(); }

}  // namespace
}  // namespace mudd::MUDD_ISA
