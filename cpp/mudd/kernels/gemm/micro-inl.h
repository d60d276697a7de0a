// The register tile: Rows x kNr elements of C, one chain over k each. Built per level.
//
// Accumulators are elements of a local array with constant indices only (pack expansions, no loops): gcc 12
// then keeps each in a register; with loops over rows it spills them.
#pragma once

#include <utility>

#include "mudd/kernels/gemm/ends-inl.h"
#if defined(MUDD_VEC_AVX2)
#include "mudd/kernels/gemm/loop_avx2-inl.h"
#elif defined(MUDD_VEC_NEON)
#include "mudd/kernels/gemm/loop_neon-inl.h"
#elif defined(MUDD_VEC_AVX512)
#include "mudd/kernels/gemm/loop_avx512-inl.h"
#elif defined(MUDD_VEC_PORTABLE) && defined(MUDD_FUSED_IN_DOUBLE)
#include "mudd/kernels/gemm/loop_doubles-inl.h"
#define MUDD_LOOP_DOUBLES
#endif

namespace mudd::MUDD_ISA {
namespace {

// Rows x kNr elements of a[Rows, k] b[k, kNr] over k units of 32 bits, a(r, i) = a[r * row_step + i *
// DepthStep].
using Micro = void (*)(int64_t k, const float* a, int64_t row_step, const float* b, const Ends& ends);

// How to read packed rows of B, add one 32-bit unit of A times B to a chain, and store a chain as bf16. This
// one: fp32 elements, one multiply-add.
struct FmaStep {
  static constexpr int kRow = kNr;         // 32-bit units of a packed row
  static constexpr bool kPairs = false;    // units are pairs of bf16 values, which add two terms
  static constexpr bool kNarrows = false;  // whether one instruction converts to bf16, so that tiles store bf16
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

constexpr float kNoSums[kNr] = {};  // a start of zeros, row step 0

// acc = the sums before + a b.
// Every third row has a separate pointer, so that no row offset needs a register.
template <class Step, int DepthStep, size_t... R>
MUDD_INLINE void chains(std::index_sequence<R...>, Pair (&acc)[sizeof...(R)], int64_t k, const float* a,
                        int64_t row_step, const float* b, const Ends& ends, Stream first, Stream second) {
  if (ends.start.at) {
    ((acc[R] = {Vec::load(ends.start.at + R * ends.start.stride),
                Vec::load(ends.start.at + R * ends.start.stride + kLanes)}),
     ...);
  } else {
    ((acc[R] = {Vec::zero(), Vec::zero()}), ...);
  }
#if defined(MUDD_LOOP_DOUBLES)
  return loop_doubles<Step, DepthStep>(std::index_sequence<R...>(), acc, k, a, row_step, b);
#endif
  const float* base[4] = {a, a + 3 * row_step, a + 6 * row_step, a + 9 * row_step};
  const auto step = [&](int i) __attribute__((always_inline)) {
    const Pair right = Step::read(b + i * Step::kRow);
    (add_product<Step>(acc[R], base[R / 3][static_cast<int64_t>(R % 3) * row_step + i * DepthStep], right), ...);
  };
  const auto go = [&](int n) __attribute__((always_inline)) {
    for (size_t i = 0; i < (sizeof...(R) + 2) / 3; ++i) base[i] += n * DepthStep;
    b += n * Step::kRow;
  };
  for (; k >= 4; k -= 4) {
    first.fetch();
    second.fetch();
    step(0);
    step(1);
    step(2);
    step(3);
    go(4);
  }
  for (; k > 0; --k) {
    step(0);
    go(1);
  }
}

// Half: store the sums in ends.half. A template argument, because the branch would cost the loop registers.
template <class Step, int DepthStep, bool Half, size_t... R>
MUDD_INLINE void micro_rows(std::index_sequence<R...> rows, int64_t k, const float* a, int64_t row_step,
                            const float* b, const Ends& ends) {
  Pair acc[sizeof...(R)];
  const Stream first = ends.fetch[0].or_at(b), second = ends.fetch[1].or_at(b);
  // Prefetch for the stores, about a thousand cycles ahead.
  if constexpr (Half) (__builtin_prefetch(ends.half + R * ends.ldc, 1, 3), ...);
  else (__builtin_prefetch(ends.c + R * ends.ldc, 1, 3), ...);
  for (int64_t i = 0; i < ends.count; ++i)
    (__builtin_prefetch(ends.addends[i].at + R * ends.addends[i].stride, 0, 3), ...);
#if defined(MUDD_VEC_AVX2) || defined(MUDD_VEC_NEON)
  if constexpr (sizeof...(R) == 6)
    loop_6x16<DepthStep == 1, Step::kRow == kLanes>(acc, k, a, row_step, b,
                                                    ends.start.at ? ends.start.at : kNoSums,
                                                    ends.start.at ? ends.start.stride : 0, first, second);
  else
#elif defined(MUDD_VEC_AVX512)
  if constexpr (sizeof...(R) == 12)
    loop_12x32<DepthStep == 1, Step::kRow == kLanes, Step::kPairs>(
        acc, k, a, row_step, b, ends.start.at ? ends.start.at : kNoSums, ends.start.at ? ends.start.stride : 0,
        first, second);
  else
#endif
    chains<Step, DepthStep>(rows, acc, k, a, row_step, b, ends, first, second);
  for (int64_t i = 0; i < ends.count; ++i) {
    const float* add = ends.addends[i].at;
    const int64_t stride = ends.addends[i].stride;
    ((acc[R].lo = Vec::load(add + R * stride) + acc[R].lo,
      acc[R].hi = Vec::load(add + R * stride + kLanes) + acc[R].hi),
     ...);
  }
  if constexpr (Half) (Step::narrow(ends.half + R * ends.ldc, acc[R]), ...);
  else ((acc[R].lo.store(ends.c + R * ends.ldc), acc[R].hi.store(ends.c + R * ends.ldc + kLanes)), ...);
}

template <class Step, int Rows, int DepthStep, bool Half>
void micro(int64_t k, const float* a, int64_t row_step, const float* b, const Ends& ends) {
  micro_rows<Step, DepthStep, Half>(std::make_index_sequence<Rows>(), k, a, row_step, b, ends);
}

// table.of[rows - 1] is the tile with that many rows.
template <class Step, int DepthStep, bool Half>
struct MicroTable {
  Micro of[kMr];
  template <size_t... R>
  constexpr explicit MicroTable(std::index_sequence<R...>) : of{micro<Step, R + 1, DepthStep, Half>...} {}
  constexpr MicroTable() : MicroTable(std::make_index_sequence<kMr>()) {}
};

// Multiply one row of A with several panels at once: the two chains of one panel would wait for the latency of
// fma.
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
