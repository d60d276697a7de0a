// The tile registers of AMX, 16 rows of 64 bytes each, and their matmul instructions; or an emulation with
// equal bits.
#pragma once

#include "mudd/base/simd/dot_bf16.h"

namespace mudd::MUDD_ISA {

constexpr int kTileRows = 16, kTileWords = 16;

#if defined(MUDD_AMX_TILES)

// Eight registers of one shape, configured in the thread from construction to destruction.
class TileSession {
 public:
  TileSession() {
    struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } const config;
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
  }
  ~TileSession() { __asm__ volatile("tilerelease"); }
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;
};

struct Tiles {
  template <int T>
  static MUDD_INLINE void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(T));
  }
  // Load rows that are `stride` floats apart.
  template <int T>
  static MUDD_INLINE void load(const float* p, int64_t stride) {
    __asm__ volatile("tileloadd (%1,%2,4), %%tmm%c0" : : "i"(T), "r"(p), "r"(stride) : "memory");
  }
  template <int T>
  static MUDD_INLINE void store(float* p, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c0, (%1,%2,4)" : : "i"(T), "r"(p), "r"(stride) : "memory");
  }
  // Add the sum over 32 values of k of a[m, k] b[k, n] to c[m, n]; b is in pairs of k.
  template <int C, int A, int B>
  static MUDD_INLINE void dot() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  }
};

#else

struct TileSession {};

class Tiles {
 public:
  template <int T>
  void zero() {
    __builtin_memset(tile_[T], 0, sizeof tile_[T]);
  }
  template <int T>
  void load(const float* p, int64_t stride) {
    for (int i = 0; i < kTileRows; ++i) __builtin_memcpy(tile_[T][i], p + i * stride, sizeof tile_[T][i]);
  }
  template <int T>
  void store(float* p, int64_t stride) const {
    for (int i = 0; i < kTileRows; ++i) __builtin_memcpy(p + i * stride, tile_[T][i], sizeof tile_[T][i]);
  }
  // The products of even and of odd k have separate sums, and both are added to c (Intel's manual).
  template <int C, int A, int B>
  void dot() {
    for (int m = 0; m < kTileRows; ++m)
      for (int n = 0; n < kTileWords; ++n) {
        float even = 0, odd = 0;
        for (int k = 0; k < kTileWords; ++k) {
          const float a = tile_[A][m][k], b = tile_[B][k][n];
          even = fused(half_of(a, false), half_of(b, false), even);
          odd = fused(half_of(a, true), half_of(b, true), odd);
        }
        tile_[C][m][n] = flushed(flushed(tile_[C][m][n]) + flushed(even + odd));
      }
  }

 private:
  float tile_[8][kTileRows][kTileWords];
};

#endif

// Sums in the registers 0 .. 3, two by two of them: rows are `stride` floats apart, and the lower or right ones
// may be skipped.
MUDD_INLINE void zero_sums(Tiles& t) {
  t.zero<0>();
  t.zero<1>();
  t.zero<2>();
  t.zero<3>();
}
MUDD_INLINE void load_sums(Tiles& t, const float* p, int64_t stride, bool below = true, bool right = true) {
  t.load<0>(p, stride);
  if (right) t.load<1>(p + kTileWords, stride);
  if (below) t.load<2>(p + kTileRows * stride, stride);
  if (below && right) t.load<3>(p + kTileRows * stride + kTileWords, stride);
}
MUDD_INLINE void store_sums(Tiles& t, float* p, int64_t stride, bool below = true, bool right = true) {
  t.store<0>(p, stride);
  if (right) t.store<1>(p + kTileWords, stride);
  if (below) t.store<2>(p + kTileRows * stride, stride);
  if (below && right) t.store<3>(p + kTileRows * stride + kTileWords, stride);
}

}  // namespace mudd::MUDD_ISA
