// The loop of a register tile for AVX2, 6 x 16, in assembly: gcc 12 keeps the 16 registers apart only for some
// address forms; for others it spills sums and loses 10 %. The bits equal the C++ loop (micro-inl.h).
#pragma once

#include "mudd/kernels/gemm/ends-inl.h"

namespace mudd::MUDD_ISA {
namespace {

// ymm0 and ymm1 contain a row of B; all six values of A pass through ymm2.
#define MUDD_ROW(a, lo, hi)                                                                                  \
  "vbroadcastss " a ", %%ymm2\n\tvfmadd231ps %%ymm0, %%ymm2, %[" lo "]\n\tvfmadd231ps %%ymm1, %%ymm2, %[" hi \
  "]\n\t"

// The six rows of A at index i: `step` bytes apart (d is the fourth), or six adjacent values.
#define MUDD_ROWS_APART(i)                         \
  MUDD_ROW("4*" #i "(%[a])", "l0", "h0")           \
  MUDD_ROW("4*" #i "(%[a],%[step])", "l1", "h1")   \
  MUDD_ROW("4*" #i "(%[a],%[step],2)", "l2", "h2") \
  MUDD_ROW("4*" #i "(%[d])", "l3", "h3")           \
  MUDD_ROW("4*" #i "(%[d],%[step])", "l4", "h4")   \
  MUDD_ROW("4*" #i "(%[d],%[step],2)", "l5", "h5")
#define MUDD_ROWS_TOGETHER(i)                \
  MUDD_ROW("24*" #i "(%[a])", "l0", "h0")    \
  MUDD_ROW("24*" #i "+4(%[a])", "l1", "h1")  \
  MUDD_ROW("24*" #i "+8(%[a])", "l2", "h2")  \
  MUDD_ROW("24*" #i "+12(%[a])", "l3", "h3") \
  MUDD_ROW("24*" #i "+16(%[a])", "l4", "h4") \
  MUDD_ROW("24*" #i "+20(%[a])", "l5", "h5")

// Row i of B: 16 floats, or eight 32-bit pairs (HalvesStep).
#define MUDD_NUMBERS(i) "vmovups 64*" #i "(%[b]), %%ymm0\n\tvmovups 64*" #i "+32(%[b]), %%ymm1\n\t"
#define MUDD_HALVES(i)                               \
  "vmovups 32*" #i                                   \
  "(%[b]), %%ymm1\n\tvpslld $16, %%ymm1, %%ymm0\n\t" \
  "vandps %[mask], %%ymm1, %%ymm1\n\t"

#define MUDD_START(lo, hi) \
  "vmovups (%%rax), %[" lo "]\n\tvmovups 32(%%rax), %[" hi "]\n\tadd %[sums_step], %%rax\n\t"

// A and B advance by a_bytes and b_bytes each k. Two ranges of memory are prefetched into L2 meanwhile.
#define MUDD_LOOP(row_of_b, rows_of_a, a_bytes, b_bytes) \
  "mov %[sums], %%rax\n\t" MUDD_START("l0", "h0") MUDD_START("l1", "h1") MUDD_START("l2", "h2")               \
  MUDD_START("l3", "h3") MUDD_START("l4", "h4") MUDD_START("l5", "h5")                                        \
  "sub $4, %[k]\n\tjl 2f\n\t.p2align 5\n"                                                                     \
  "1:\n\tprefetcht1 (%[f])\n\tadd %[f_step], %[f]\n\t" row_of_b(0) rows_of_a(0) row_of_b(1) rows_of_a(1)      \
  "prefetcht1 (%[g])\n\tadd %[g_step], %[g]\n\t" row_of_b(2) rows_of_a(2) row_of_b(3) rows_of_a(3)            \
  "add $4*" #a_bytes ", %[a]\n\tadd $4*" #a_bytes ", %[d]\n\tadd $4*" #b_bytes ", %[b]\n\t"                   \
  "sub $4, %[k]\n\tjge 1b\n"                                                                                  \
  "2:\n\tadd $4, %[k]\n\tjz 4f\n"                                                                             \
  "3:\n\t" row_of_b(0) rows_of_a(0) "add $" #a_bytes ", %[a]\n\tadd $" #a_bytes ", %[d]\n\tadd $" #b_bytes    \
  ", %[b]\n\tdec %[k]\n\tjnz 3b\n"                                                                            \
  "4:\n"

#define MUDD_TILE(row_of_b, rows_of_a, a_bytes, b_bytes)                                                     \
  asm volatile(MUDD_LOOP(row_of_b, rows_of_a, a_bytes, b_bytes)                                              \
               : [l0] "=&x"(c[0].lo.v), [h0] "=&x"(c[0].hi.v), [l1] "=&x"(c[1].lo.v), [h1] "=&x"(c[1].hi.v), \
                 [l2] "=&x"(c[2].lo.v), [h2] "=&x"(c[2].hi.v), [l3] "=&x"(c[3].lo.v), [h3] "=&x"(c[3].hi.v), \
                 [l4] "=&x"(c[4].lo.v), [h4] "=&x"(c[4].hi.v), [l5] "=&x"(c[5].lo.v), [h5] "=&x"(c[5].hi.v), \
                 [a] "+&r"(a), [d] "+&r"(d), [b] "+&r"(b), [k] "+&r"(k), [f] "+&r"(f.at), [g] "+&r"(g.at)    \
               : [step] "r"(step), [f_step] "r"(f.step), [g_step] "r"(g.step), [sums] "r"(sums),             \
                 [sums_step] "r"(sums_step), [mask] "m"(kUpperHalves)                                        \
               : "rax", "xmm0", "xmm1", "xmm2", "cc", "memory")

alignas(32) constexpr uint32_t kUpperHalves[8] = {0xffff0000u, 0xffff0000u, 0xffff0000u, 0xffff0000u,
                                                  0xffff0000u, 0xffff0000u, 0xffff0000u, 0xffff0000u};

// c = sums + a[6, k] b[k, 16]. RowsApart: a(r, i) = a[r * row_step + i], else a[6 i + r]. Halves: b contains
// 32-bit pairs.
template <bool RowsApart, bool Halves>
MUDD_INLINE void loop_6x16(Pair (&c)[6], int64_t k, const float* a, int64_t row_step, const float* b,
                           const float* sums, int64_t sums_stride, Stream f, Stream g) {
  const float* d = a + 3 * row_step;
  const int64_t step = 4 * row_step, sums_step = 4 * sums_stride;
  if constexpr (RowsApart && Halves) MUDD_TILE(MUDD_HALVES, MUDD_ROWS_APART, 4, 32);
  else if constexpr (RowsApart) MUDD_TILE(MUDD_NUMBERS, MUDD_ROWS_APART, 4, 64);
  else if constexpr (Halves) MUDD_TILE(MUDD_HALVES, MUDD_ROWS_TOGETHER, 24, 32);
  else MUDD_TILE(MUDD_NUMBERS, MUDD_ROWS_TOGETHER, 24, 64);
}

#undef MUDD_TILE
#undef MUDD_LOOP
#undef MUDD_START
#undef MUDD_HALVES
#undef MUDD_NUMBERS
#undef MUDD_ROWS_TOGETHER
#undef MUDD_ROWS_APART
#undef MUDD_ROW

}  // namespace
}  // namespace mudd::MUDD_ISA
