// The work between the steps of a register tile: stores of the finished tile to C, and prefetches for the next
// one. All counts are in rows or lines a step.
#pragma once

#include "mudd/kernels/gemm/tiles-inl.h"

namespace mudd::MUDD_ISA {
namespace {

// A finished tile of `rows` rows, stored as bf16, or in fp32 plus the residual.
struct Leaving {
  const float* sums = nullptr;
  bf16* half = nullptr;
  float* full = nullptr;
  const float* residual = nullptr;
  int64_t ld = 0, residual_ld = 0;
  int rows = 0;

  MUDD_INLINE void store(int n) {
    n = n < rows ? n : rows;
    rows -= n;
    if (half) {
      for (; n > 0; --n, sums += kNr, half += ld) DotStep::narrow(half, DotStep::read(sums));
      return;
    }
    for (; n > 0; --n, sums += kNr, full += ld, residual += residual_ld) {
      (Vec::load(residual) + Vec::load(sums)).store(full);
      (Vec::load(residual + kLanes) + Vec::load(sums + kLanes)).store(full + kLanes);
    }
  }
};

// A prefetch of `left` lines `step` bytes apart, or of pairs of lines if a row of a tile has two.
template <int kWrite>
struct Fetch {
  const char* at = nullptr;
  int64_t step = 64;
  int left = 0;
  bool two = false;

  // The rows of a tile.
  static Fetch rows_of(ConstCells first, int64_t stride, int64_t rows) {
    const int size = first.type == DType::bf16 ? 2 : 4;
    return {static_cast<const char*>(first.data), stride * size, static_cast<int>(rows), kNr * size > 64};
  }

  MUDD_INLINE void fetch(int n) {
    n = n < left ? n : left;
    left -= n;
    for (; n > 0; --n, at += step) {
      __builtin_prefetch(at, kWrite, kWrite ? 3 : 2);
      if (two) __builtin_prefetch(at + 64, kWrite, kWrite ? 3 : 2);
    }
  }
};

}  // namespace
}  // namespace mudd::MUDD_ISA
