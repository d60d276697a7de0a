// The loop of a register tile for AVX-512, 12 x 32, in assembly: gcc 12 reloads steps and pointers inside the
// loop, which competes with the two multipliers and costs 10 %. The bits equal the C++ loop (micro-inl.h).
#pragma once

#include "mudd/kernels/gemm/ends-inl.h"

namespace mudd::MUDD_ISA {
namespace {

// zmm0 and zmm1 contain a row of B; all twelve values of A pass through zmm2.
#define MUDD_ROW(add, a, r) \
  "vbroadcastss " a ", %%zmm2\n\t" add " %%zmm0, %%zmm2, %[l" #r "]\n\t" add " %%zmm1, %%zmm2, %[h" #r "]\n\t"

// The twelve rows of A at index i. Apart: rsi is the first, rdi the eighth; rdx, r8 and r9 are one, three and
// five steps. Only two pointers advance: every other instruction may delay a multiply-add.
#define MUDD_ROWS_APART(add, i)               \
  MUDD_ROW(add, "4*" #i "(%%rsi)", 0)         \
  MUDD_ROW(add, "4*" #i "(%%rsi,%%rdx)", 1)   \
  MUDD_ROW(add, "4*" #i "(%%rsi,%%rdx,2)", 2) \
  MUDD_ROW(add, "4*" #i "(%%rsi,%%r8)", 3)    \
  MUDD_ROW(add, "4*" #i "(%%rsi,%%rdx,4)", 4) \
  MUDD_ROW(add, "4*" #i "(%%rsi,%%r9)", 5)    \
  MUDD_ROW(add, "4*" #i "(%%rsi,%%r8,2)", 6)  \
  MUDD_ROW(add, "4*" #i "(%%rdi)", 7)         \
  MUDD_ROW(add, "4*" #i "(%%rsi,%%rdx,8)", 8) \
  MUDD_ROW(add, "4*" #i "(%%rdi,%%rdx,2)", 9) \
  MUDD_ROW(add, "4*" #i "(%%rsi,%%r9,2)", 10) \
  MUDD_ROW(add, "4*" #i "(%%rdi,%%rdx,4)", 11)
#define MUDD_ROWS_TOGETHER(add, i)         \
  MUDD_ROW(add, "48*" #i "(%%rsi)", 0)     \
  MUDD_ROW(add, "48*" #i "+4(%%rsi)", 1)   \
  MUDD_ROW(add, "48*" #i "+8(%%rsi)", 2)   \
  MUDD_ROW(add, "48*" #i "+12(%%rsi)", 3)  \
  MUDD_ROW(add, "48*" #i "+16(%%rsi)", 4)  \
  MUDD_ROW(add, "48*" #i "+20(%%rsi)", 5)  \
  MUDD_ROW(add, "48*" #i "+24(%%rsi)", 6)  \
  MUDD_ROW(add, "48*" #i "+28(%%rsi)", 7)  \
  MUDD_ROW(add, "48*" #i "+32(%%rsi)", 8)  \
  MUDD_ROW(add, "48*" #i "+36(%%rsi)", 9)  \
  MUDD_ROW(add, "48*" #i "+40(%%rsi)", 10) \
  MUDD_ROW(add, "48*" #i "+44(%%rsi)", 11)

// Row i of B: 32 floats, or 16 pairs of two columns (HalvesStep).
#define MUDD_WORDS(i) "vmovups 128*" #i "(%%r10), %%zmm0\n\tvmovups 128*" #i "+64(%%r10), %%zmm1\n\t"
#define MUDD_HALVES(i)                                                 \
  "vmovups 64*" #i "(%%r10), %%zmm1\n\tvpslld $16, %%zmm1, %%zmm0\n\t" \
  "vpandd %[mask]%{1to16%}, %%zmm1, %%zmm1\n\t"

#define MUDD_START(r) "vmovups (%%rax), %[l" #r "]\n\tvmovups 64(%%rax), %[h" #r "]\n\tadd %%rcx, %%rax\n\t"
#define MUDD_THREE(r, s, t) MUDD_START(r) MUDD_START(s) MUDD_START(t)
#define MUDD_STARTS MUDD_THREE(0, 1, 2) MUDD_THREE(3, 4, 5) MUDD_THREE(6, 7, 8) MUDD_THREE(9, 10, 11)

// Load the members of Walk. r13 and r15: the steps of the streams at r12 and r14.
#define MUDD_READ_WALK                                                                                       \
  "mov (%[walk]), %%rsi\n\tmov 8(%[walk]), %%rdx\n\tmov 16(%[walk]), %%r10\n\tmov 24(%[walk]), %%r11\n\t"    \
  "mov 32(%[walk]), %%rax\n\tmov 40(%[walk]), %%rcx\n\tmov 48(%[walk]), %%r12\n\tmov 56(%[walk]), %%r13\n\t" \
  "mov 64(%[walk]), %%r14\n\tmov 72(%[walk]), %%r15\n\tlea (%%rdx,%%rdx,2), %%r8\n\t"                        \
  "lea (%%rdx,%%rdx,4), %%r9\n\tlea (%%r9,%%rdx,2), %%rdi\n\tadd %%rsi, %%rdi\n\t"

// Prefetch into L1 the part of B that the loop reads a hundred cycles after row i. Every tile reads its panel
// from L2, and half of the reorder buffer (the part of one hyper-thread) does not cover that latency.
#define MUDD_NEAR_128(i) "prefetcht0 128*" #i "+1024(%%r10)\n\tprefetcht0 128*" #i "+1088(%%r10)\n\t"
#define MUDD_NEAR_64(i) "prefetcht0 64*" #i "+512(%%r10)\n\t"

#define MUDD_FETCH(at, step) "prefetcht1 (%%" #at ")\n\tadd %%" #step ", %%" #at "\n\t"
#define MUDD_ON(n, a_bytes, b_bytes) \
  "add $" #n "*" #a_bytes ", %%rsi\n\tadd $" #n "*" #a_bytes ", %%rdi\n\tadd $" #n "*" #b_bytes ", %%r10\n\t"
#define MUDD_TWO(add, b, a, near, i, j) near(i) b(i) a(add, i) near(j) b(j) a(add, j)

// A and B advance by a_bytes and b_bytes each k. Two ranges of memory are prefetched into L2 meanwhile.
#define MUDD_LOOP(add, b, a, a_bytes, b_bytes)                                                          \
  MUDD_READ_WALK MUDD_STARTS                                                                            \
      "sub $4, %%r11\n\tjl 2f\n\t.p2align 6\n"                                                          \
      "1:\n\t" MUDD_FETCH(r12, r13) MUDD_TWO(add, b, a, MUDD_NEAR_##b_bytes, 0, 1) MUDD_FETCH(r14, r15) \
          MUDD_TWO(add, b, a, MUDD_NEAR_##b_bytes, 2, 3)                                                \
              MUDD_ON(4, a_bytes, b_bytes) "sub $4, %%r11\n\tjge 1b\n"                                  \
                                           "2:\n\tadd $4, %%r11\n\tjz 4f\n"                             \
                                           "3:\n\t" b(0) a(add, 0)                                      \
                                               MUDD_ON(1, a_bytes, b_bytes) "dec %%r11\n\tjnz 3b\n"     \
                                                                            "4:\n"

#define MUDD_SUM(r) [l##r] "=&v"(c[r].lo.v), [h##r] "=&v"(c[r].hi.v)
#define MUDD_TILE(add, row_of_b, rows_of_a, a_bytes, b_bytes)                                                     \
  asm volatile(MUDD_LOOP(add, row_of_b, rows_of_a, a_bytes, b_bytes)                                              \
               : MUDD_SUM(0), MUDD_SUM(1), MUDD_SUM(2), MUDD_SUM(3), MUDD_SUM(4), MUDD_SUM(5), MUDD_SUM(6),       \
                 MUDD_SUM(7), MUDD_SUM(8), MUDD_SUM(9), MUDD_SUM(10), MUDD_SUM(11)                                \
               : [walk] "r"(&walk), [mask] "m"(kUpperHalf)                                                        \
               : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", \
                 "xmm1", "xmm2", "cc", "memory")

constexpr uint32_t kUpperHalf = 0xffff0000u;

// c = sums + a[12, k] b[k, 32]. Pairs: 32 bits are two bf16 values. RowsApart: a(r, i) = a[r * row_step + i],
// else a[12 i + r]. Halves: b contains pairs of columns.
template <bool RowsApart, bool Halves, bool Pairs>
MUDD_INLINE void loop_12x32(Pair (&c)[12], int64_t k, const float* a, int64_t row_step, const float* b,
                            const float* sums, int64_t sums_stride, Stream f, Stream g) {
  const Walk walk{a, 4 * row_step, b, k, sums, 4 * sums_stride, f, g};
  if constexpr (RowsApart && Pairs) MUDD_TILE("vdpbf16ps", MUDD_WORDS, MUDD_ROWS_APART, 4, 128);
  else if constexpr (Pairs) MUDD_TILE("vdpbf16ps", MUDD_WORDS, MUDD_ROWS_TOGETHER, 48, 128);
  else if constexpr (RowsApart && Halves) MUDD_TILE("vfmadd231ps", MUDD_HALVES, MUDD_ROWS_APART, 4, 64);
  else if constexpr (RowsApart) MUDD_TILE("vfmadd231ps", MUDD_WORDS, MUDD_ROWS_APART, 4, 128);
  else if constexpr (Halves) MUDD_TILE("vfmadd231ps", MUDD_HALVES, MUDD_ROWS_TOGETHER, 48, 64);
  else MUDD_TILE("vfmadd231ps", MUDD_WORDS, MUDD_ROWS_TOGETHER, 48, 128);
}

#undef MUDD_TILE
#undef MUDD_SUM
#undef MUDD_LOOP
#undef MUDD_TWO
#undef MUDD_ON
#undef MUDD_FETCH
#undef MUDD_NEAR_64
#undef MUDD_NEAR_128
#undef MUDD_READ_WALK
#undef MUDD_STARTS
#undef MUDD_THREE
#undef MUDD_START
#undef MUDD_HALVES
#undef MUDD_WORDS
#undef MUDD_ROWS_TOGETHER
#undef MUDD_ROWS_APART
#undef MUDD_ROW

}  // namespace
}  // namespace mudd::MUDD_ISA
