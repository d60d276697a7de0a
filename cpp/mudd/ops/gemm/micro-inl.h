// The register tile: Rows x kNr elements of C, one chain over k each. Built per level.
//
// Accumulators are elements of a local array that only constant indices touch (pack expansions, no loops):
// gcc 12 then keeps each in a register; with loops over rows it spills them.
#pragma once

#include <utility>

#include "mudd/base/simd/bf16.h"

#define MUDD_INLINE inline __attribute__((always_inline))

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
// Depth of a cache block: a panel of B then fits L1. Counted in words of 32 bits, as the micro-kernels count k: a
// number, or with bf16 units a pair of them.
constexpr int64_t kKc = 256;
constexpr int64_t kDepth = 512;
constexpr int64_t kLeftStride = kDepth + 16;  // words from row to row of a block of A

inline int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

struct Addend {
  const float* at = nullptr;
  int64_t stride = 0;
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
};

// Rows x kNr elements of a[Rows, k] b[k, kNr] over k words, a(r, i) = a[r * row_step + i * depth_step].
using Micro = void (*)(int64_t k, const float* a, const float* b, const Ends& ends);

// Fetches [p, p + bytes) into L2 while the tiles at work keep the multipliers busy.
MUDD_INLINE void fetch_ahead(const void* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(p) + i, 0, 2);
}

struct Pair {
  Vec lo, hi;
};

// How packed rows of B are read, what a word of A and one of B add to a chain, and how chains end in bf16. Here:
// fp32 numbers, one product.
struct FmaStep {
  static constexpr int kRow = kNr;         // words of a packed row
  static constexpr bool kNarrows = false;  // whether one instruction does it, so that tiles end in bf16 themselves
  static MUDD_INLINE Pair read(const float* b) { return {Vec::load(b), Vec::load(b + kLanes)}; }
  static MUDD_INLINE Vec add(Vec a, Vec b, Vec c) { return fma(a, b, c); }
  static MUDD_INLINE void narrow(bf16* to, Pair c) { store(to, c.lo, c.hi); }
};

template <class Step>
MUDD_INLINE void add_product(Pair& c, float a, Pair b) {
  const Vec v = Vec::set1(a);
  c.lo = Step::add(v, b.lo, c.lo);
  c.hi = Step::add(v, b.hi, c.hi);
}

// RowStep and DepthStep are constants, so that one pointer and displacements reach all of A.
// Half: the sums end in ends.half. A constant, for the branch would cost the loop registers.
template <class Step, int RowStep, int DepthStep, bool Half, size_t... R>
MUDD_INLINE void micro_rows(std::index_sequence<R...>, int64_t k, const float* a, const float* b,
                            const Ends& ends) {
  Pair acc[sizeof...(R)];
  // What is needed a thousand cycles from now, after the sums.
  if constexpr (Half) (__builtin_prefetch(ends.half + R * ends.ldc, 1, 3), ...);
  else (__builtin_prefetch(ends.c + R * ends.ldc, 1, 3), ...);
  for (int i = 0; i < ends.count; ++i)
    (__builtin_prefetch(ends.addends[i].at + R * ends.addends[i].stride, 0, 3), ...);
  if (ends.start) {
    ((acc[R] = {Vec::load(ends.start + R * ends.start_stride),
                Vec::load(ends.start + R * ends.start_stride + kLanes)}),
     ...);
  } else {
    ((acc[R] = {Vec::zero(), Vec::zero()}), ...);
  }
  const auto step = [&](int i) __attribute__((always_inline)) {
    const Pair right = Step::read(b + i * Step::kRow);
    (add_product<Step>(acc[R], a[static_cast<int>(R) * RowStep + i * DepthStep], right), ...);
  };
  for (; k >= 4; k -= 4) {
    step(0);
    step(1);
    step(2);
    step(3);
    a += 4 * DepthStep;
    b += 4 * Step::kRow;
  }
  for (; k > 0; --k) {
    step(0);
    a += DepthStep;
    b += Step::kRow;
  }
  for (int i = 0; i < ends.count; ++i) {
    const float* add = ends.addends[i].at;
    const int64_t stride = ends.addends[i].stride;
    ((acc[R].lo = Vec::load(add + R * stride) + acc[R].lo,
      acc[R].hi = Vec::load(add + R * stride + kLanes) + acc[R].hi),
     ...);
  }
  if constexpr (Half) (Step::narrow(ends.half + R * ends.ldc, acc[R]), ...);
  else ((acc[R].lo.store(ends.c + R * ends.ldc), acc[R].hi.store(ends.c + R * ends.ldc + kLanes)), ...);
}

template <class Step, int Rows, int RowStep, int DepthStep, bool Half>
void micro(int64_t k, const float* a, const float* b, const Ends& ends) {
  micro_rows<Step, RowStep, DepthStep, Half>(std::make_index_sequence<Rows>(), k, a, b, ends);
}

// table.of[rows - 1]: the tile with that many rows.
template <class Step, int RowStep, int DepthStep, bool Half>
struct MicroTable {
  Micro of[kMr];
  template <size_t... R>
  constexpr explicit MicroTable(std::index_sequence<R...>) : of{micro<Step, R + 1, RowStep, DepthStep, Half>...} {}
  constexpr MicroTable() : MicroTable(std::make_index_sequence<kMr>()) {}
};

// One row of A against Panels panels at once: a single panel's two chains would wait for the latency of fma.
template <class Step, size_t... P>
MUDD_INLINE void vector_panels(std::index_sequence<P...>, int64_t k, const float* a, const float* b,
                               int64_t panel_stride, const float* start, float* c) {
  Pair acc[sizeof...(P)];
  if (start) {
    ((acc[P] = {Vec::load(start + P * kNr), Vec::load(start + P * kNr + kLanes)}), ...);
  } else {
    ((acc[P] = {Vec::zero(), Vec::zero()}), ...);
  }
  for (int64_t i = 0; i < k; ++i) {
    (add_product<Step>(acc[P], a[i], Step::read(b + P * panel_stride)), ...);
    b += Step::kRow;
  }
  ((acc[P].lo.store(c + P * kNr), acc[P].hi.store(c + P * kNr + kLanes)), ...);
}

}  // namespace
}  // namespace mudd::MUDD_ISA
