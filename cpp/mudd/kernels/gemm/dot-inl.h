// bf16 with instructions that multiply pairs (vdpbf16ps), or their emulation with equal bits. Built for the
// levels avx512_bf16, amx_bf16 and their emulations (files <level>.cc).
#pragma once

#include <type_traits>

#include "mudd/base/simd/dot_bf16.h"
#include "mudd/kernels/gemm/unit-inl.h"

namespace mudd::MUDD_ISA {
namespace {

// Sums are stored as bf16 like the hardware does it: to nearest even, denormals to zero.
struct DotStep : FmaStep {
  static constexpr bool kPairs = true, kNarrows = true;
  static MUDD_INLINE Vec add(Vec a, Vec b, Vec c) { return dot_pairs(a, b, c); }

#if defined(__AVX512BF16__)
  static MUDD_INLINE void narrow(bf16* to, Pair c) {
    _mm512_storeu_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(c.hi.v, c.lo.v)));
  }
#else
  static void narrow(bf16* to, Pair c) {
    for (Vec* v : {&c.lo, &c.hi})
      for (int i = 0; i < Vec::kLanes; ++i) v->v[i] = flushed(v->v[i]);
    store(to, c.lo, c.hi);
  }
#endif
};

// Packs two elements into 32 bits; the one with the smaller k is in the lower half.
struct AsPairs : WholePanels<AsPairs> {
  static constexpr int kPer = 2;
  template <class From>
  static MUDD_INLINE Vec words(const From* const* rows, int64_t at, int n) {
    if constexpr (std::is_same_v<From, bf16>)
      if (n == kLanes && rows[1]) return pairs(rows[0] + at, rows[1] + at);
    const Vec even = rows[0] ? as_bf16(rows[0] + at, n) : Vec::zero();
    return pairs(even, rows[1] ? as_bf16(rows[1] + at, n) : Vec::zero());
  }
  template <class From>
  static MUDD_INLINE void put(float* to, const From* const* rows, int64_t at, int n) {
    words(rows, at, n).store(to);
  }
};

struct PairUnit {
  using Packed = AsPairs;
  using Left = AsPairs;
  using Step = DotStep;
  static constexpr DType kPacked = DType::bf16;

  // Two neighbours in memory are a pair already.
  static bool in_place(ConstCells a, int64_t lda, int64_t k) {
    return a.type == DType::bf16 && lda % 2 == 0 && k % 2 == 0 && reinterpret_cast<uintptr_t>(a.data) % 4 == 0;
  }
  static void copy_row(ConstCells from, int64_t numbers, int64_t kc, float* to) {
    bf16* halves = reinterpret_cast<bf16*>(to);  // written as bf16, read as fp32 lanes
    if (from.type == DType::bf16) __builtin_memcpy(to, from.data, static_cast<size_t>(numbers) * sizeof(bf16));
    else over_row(numbers, [&](int64_t i, int n) { store(halves + i, load(from.f32() + i, n), n); });
    __builtin_memset(static_cast<void*>(halves + numbers), 0,
                     static_cast<size_t>(2 * kc - numbers) * sizeof(bf16));
  }
};

struct DotUnit : PairUnit, VectorTiles<DotStep> {
  static constexpr int64_t kDepthUnit = 2;
};

}  // namespace
}  // namespace mudd::MUDD_ISA
