// The loop of a register tile for NEON, 6 x 16, in assembly: 24 sums, six registers of A and two of B take all 32
// registers, and gcc 12 would spill some. The bits equal the C++ loop (micro-inl.h).
#pragma once

#include "mudd/kernels/gemm/ends-inl.h"

namespace mudd::MUDD_ISA {
namespace {

// One load of A serves four k: a multiply-add reads its factor from one lane of v0 to v5. v6 and v7 contain half
// of a row of B, so that the row takes two registers at a time.
#define MUDD_ROW(x, y, low, high, a) \
  "fmla %[" x "].4s, " low ".4s, " a "\n\tfmla %[" y "].4s, " high ".4s, " a "\n\t"
#define MUDD_HALF(x, y, low, high, a0, a1, a2, a3, a4, a5) \
  MUDD_ROW(x "0", y "0", low, high, a0)                    \
  MUDD_ROW(x "1", y "1", low, high, a1)                    \
  MUDD_ROW(x "2", y "2", low, high, a2)                    \
  MUDD_ROW(x "3", y "3", low, high, a3)                    \
  MUDD_ROW(x "4", y "4", low, high, a4)                    \
  MUDD_ROW(x "5", y "5", low, high, a5)

// Row i of B times A: 16 floats, or eight 32-bit pairs (HalvesStep).
#define MUDD_NUMBERS(i, ...)                                                      \
  "ldp q6, q7, [x6, #64*" #i                                                      \
  "]\n\t" MUDD_HALF("p", "q", "v6", "v7", __VA_ARGS__) "ldp q6, q7, [x6, #64*" #i \
                                                       "+32]\n\t" MUDD_HALF("s", "t", "v6", "v7", __VA_ARGS__)
#define MUDD_SPLIT "shl v7.4s, v6.4s, #16\n\tbic v6.4s, #255\n\tbic v6.4s, #255, lsl #8\n\t"
#define MUDD_HALVES(i, ...)                                     \
  "ldr q6, [x6, #32*" #i "]\n\t" MUDD_SPLIT MUDD_HALF(          \
      "p", "s", "v7", "v6", __VA_ARGS__) "ldr q6, [x6, #32*" #i \
                                         "+16]\n\t" MUDD_SPLIT MUDD_HALF("q", "t", "v7", "v6", __VA_ARGS__)

// Four k of the six rows of A, or one: rows apart, each with its pointer; or six adjacent values for each k.
#define MUDD_LANE(i) "v0.s[" #i "]", "v1.s[" #i "]", "v2.s[" #i "]", "v3.s[" #i "]", "v4.s[" #i "]", "v5.s[" #i "]"
#define MUDD_LOAD_APART(type, bytes)                                                                   \
  "ldr " type "0, [x0], #" bytes "\n\tldr " type "1, [x1], #" bytes "\n\tldr " type "2, [x2], #" bytes \
  "\n\tldr " type "3, [x3], #" bytes "\n\tldr " type "4, [x4], #" bytes "\n\tldr " type "5, [x5], #" bytes "\n\t"
#define MUDD_FOUR_APART(row_of_b) \
  MUDD_LOAD_APART("q", "16")      \
  row_of_b(0, MUDD_LANE(0)) row_of_b(1, MUDD_LANE(1)) row_of_b(2, MUDD_LANE(2)) row_of_b(3, MUDD_LANE(3))
#define MUDD_ONE_APART(row_of_b) MUDD_LOAD_APART("s", "4") row_of_b(0, MUDD_LANE(0))
#define MUDD_FOUR_TOGETHER(row_of_b)                                                                    \
  "ldp q0, q1, [x0]\n\tldp q2, q3, [x0, #32]\n\tldp q4, q5, [x0, #64]\n\tadd x0, x0, #96\n\t" row_of_b( \
      0, "v0.s[0]", "v0.s[1]", "v0.s[2]", "v0.s[3]", "v1.s[0]", "v1.s[1]")                              \
      row_of_b(1, "v1.s[2]", "v1.s[3]", "v2.s[0]", "v2.s[1]", "v2.s[2]", "v2.s[3]")                     \
          row_of_b(2, "v3.s[0]", "v3.s[1]", "v3.s[2]", "v3.s[3]", "v4.s[0]", "v4.s[1]")                 \
              row_of_b(3, "v4.s[2]", "v4.s[3]", "v5.s[0]", "v5.s[1]", "v5.s[2]", "v5.s[3]")
#define MUDD_ONE_TOGETHER(row_of_b)                                                                       \
  "ldr q0, [x0]\n\tldr d1, [x0, #16]\n\tadd x0, x0, #24\n\t" row_of_b(0, "v0.s[0]", "v0.s[1]", "v0.s[2]", \
                                                                      "v0.s[3]", "v1.s[0]", "v1.s[1]")

#define MUDD_START(r) \
  "ldp %q[p" #r "], %q[q" #r "], [x12]\n\tldp %q[s" #r "], %q[t" #r "], [x12, #32]\n\tadd x12, x12, x13\n\t"

// Load the members of Walk. x9 and x11: the steps of the streams at x8 and x10; x14: the step of A.
#define MUDD_READ_WALK                                                                       \
  "ldp x0, x14, [%[walk]]\n\tldp x6, x7, [%[walk], #16]\n\tldp x12, x13, [%[walk], #32]\n\t" \
  "ldp x8, x9, [%[walk], #48]\n\tldp x10, x11, [%[walk], #64]\n\tadd x1, x0, x14\n\t"        \
  "add x2, x1, x14\n\tadd x3, x2, x14\n\tadd x4, x3, x14\n\tadd x5, x4, x14\n\t"

// B advances by b_bytes each k. Two ranges of memory are prefetched into L2 meanwhile.
#define MUDD_LOOP(row_of_b, four, one, b_bytes)                                                                 \
  MUDD_READ_WALK MUDD_START(0) MUDD_START(1) MUDD_START(2) MUDD_START(3) MUDD_START(4) MUDD_START(              \
      5) "subs x7, x7, #4\n\tb.lt 2f\n\t.p2align 5\n"                                                           \
         "1:\n\tprfm pldl2keep, [x8]\n\tadd x8, x8, x9\n\tprfm pldl2keep, [x10]\n\tadd x10, x10, x11\n\t" four( \
             row_of_b) "add x6, x6, #4*" #b_bytes "\n\tsubs x7, x7, #4\n\tb.ge 1b\n"                            \
                       "2:\n\tadds x7, x7, #4\n\tb.eq 4f\n"                                                     \
                       "3:\n\t" one(row_of_b) "add x6, x6, #" #b_bytes "\n\tsubs x7, x7, #1\n\tb.ne 3b\n"       \
                                              "4:\n"

#define MUDD_SUM(r) \
  [p##r] "=&w"(c[r].lo.low), [q##r] "=&w"(c[r].lo.high), [s##r] "=&w"(c[r].hi.low), [t##r] "=&w"(c[r].hi.high)
#define MUDD_TILE(row_of_b, four, one, b_bytes)                                                                 \
  asm volatile(MUDD_LOOP(row_of_b, four, one, b_bytes)                                                          \
               : MUDD_SUM(0), MUDD_SUM(1), MUDD_SUM(2), MUDD_SUM(3), MUDD_SUM(4), MUDD_SUM(5)                   \
               : [walk] "r"(&walk)                                                                              \
               : "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", \
                 "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "cc", "memory")

// c = sums + a[6, k] b[k, 16]. RowsApart: a(r, i) = a[r * row_step + i], else a[6 i + r]. Halves: b contains
// 32-bit pairs.
template <bool RowsApart, bool Halves>
MUDD_INLINE void loop_6x16(Pair (&c)[6], int64_t k, const float* a, int64_t row_step, const float* b,
                           const float* sums, int64_t sums_stride, Stream f, Stream g) {
  const Walk walk{a, 4 * row_step, b, k, sums, 4 * sums_stride, f, g};
  if constexpr (RowsApart && Halves) MUDD_TILE(MUDD_HALVES, MUDD_FOUR_APART, MUDD_ONE_APART, 32);
  else if constexpr (RowsApart) MUDD_TILE(MUDD_NUMBERS, MUDD_FOUR_APART, MUDD_ONE_APART, 64);
  else if constexpr (Halves) MUDD_TILE(MUDD_HALVES, MUDD_FOUR_TOGETHER, MUDD_ONE_TOGETHER, 32);
  else MUDD_TILE(MUDD_NUMBERS, MUDD_FOUR_TOGETHER, MUDD_ONE_TOGETHER, 64);
}

#undef MUDD_TILE
#undef MUDD_SUM
#undef MUDD_LOOP
#undef MUDD_READ_WALK
#undef MUDD_START
#undef MUDD_ONE_TOGETHER
#undef MUDD_FOUR_TOGETHER
#undef MUDD_ONE_APART
#undef MUDD_FOUR_APART
#undef MUDD_LOAD_APART
#undef MUDD_LANE
#undef MUDD_HALVES
#undef MUDD_SPLIT
#undef MUDD_NUMBERS
#undef MUDD_HALF
#undef MUDD_ROW

}  // namespace
}  // namespace mudd::MUDD_ISA
