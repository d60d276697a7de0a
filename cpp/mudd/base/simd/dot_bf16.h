// Dot products of bf16 pairs: vdpbf16ps, or its emulation with equal bits.
#pragma once

#include "mudd/base/simd/inline.h"
#include "mudd/base/simd/vec.h"

#if defined(__AMX_BF16__) || defined(__AMXBF16__)  // the second: clang 14
#define MUDD_AMX_TILES
#endif

namespace mudd::MUDD_ISA {

#if !defined(__AVX512BF16__) || !defined(MUDD_AMX_TILES)

// The hardware reads and writes denormals as zeros, whatever the mode of the thread.
inline float flushed(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7f800000u) == 0) bits &= 0x80000000u;
  __builtin_memcpy(&x, &bits, sizeof bits);
  return x;
}
inline float fused(float a, float b, float c) {
  return flushed(__builtin_fmaf(flushed(a), flushed(b), flushed(c)));
}

inline float half_of(float word, bool odd) {
  uint32_t bits;
  __builtin_memcpy(&bits, &word, sizeof bits);
  bits = odd ? bits & 0xffff0000u : bits << 16;
  __builtin_memcpy(&word, &bits, sizeof bits);
  return word;
}

#endif

// Return c plus the product of the odd elements, then plus the product of the even ones, each rounded: the
// order of the hardware (Intel's manual; Zen 4 has the same bits).
#if defined(__AVX512BF16__)
MUDD_INLINE Vec dot_pairs(Vec a, Vec b, Vec c) {
  return {_mm512_dpbf16_ps(c.v, reinterpret_cast<__m512bh>(a.v), reinterpret_cast<__m512bh>(b.v))};
}
#else
inline Vec dot_pairs(Vec a, Vec b, Vec c) {
  for (int i = 0; i < Vec::kLanes; ++i) {
    c.v[i] = fused(half_of(a.v[i], true), half_of(b.v[i], true), c.v[i]);
    c.v[i] = fused(half_of(a.v[i], false), half_of(b.v[i], false), c.v[i]);
  }
  return c;
}
#endif

}  // namespace mudd::MUDD_ISA
