// Selects the Vec of the level of this translation unit. The first include of every kernel-inl.h.
//
// cpp/cmake/isa.cmake generates one file per op and level which defines MUDD_ISA (the namespace: avx2)
// and one of MUDD_VEC_{PORTABLE,AVX2,AVX512,NEON,SIXTEEN}, then includes the op's kernel-inl.h.
// Sealed: only plain pointers and sizes cross the border of these files; no STL containers, no Eigen, no
// parallel.h; everything is in namespace mudd::MUDD_ISA, so no inline function can leak.
//
// Every Vec has the same interface: kLanes floats, load/store (unaligned), load_n/store_n (first n lanes,
// others zero / untouched), set1, + - * /, fma(a,b,c)=a*b+c, fnma=c-a*b, min, max, sqrt, abs,
// sum()/max_lane() (fixed binary tree over lanes), less(a,b) -> Mask, select(mask,a,b),
// round (to nearest even), pow2(n) = 2^n for integral n in [-126, 127],
// exponent(x)/mantissa(x) of positive normal x (mantissa in [1,2)).
#pragma once

#include <cstdint>

#if defined(MUDD_VEC_AVX512)
#include "mudd/base/simd/vec_avx512.h"
#elif defined(MUDD_VEC_AVX2)
#include "mudd/base/simd/vec_avx2.h"
#elif defined(MUDD_VEC_NEON)
#include "mudd/base/simd/vec_neon.h"
#elif defined(MUDD_VEC_PORTABLE) || defined(MUDD_VEC_SIXTEEN)
#include "mudd/base/simd/vec_array.h"
#else
#error "build kernels through add_op (cpp/cmake/isa.cmake)"
#endif
