// Shared by the tests of gemm: operands in either type, packed or with gaps, their GEMMs, and the sizes to run.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "compare.h"
#include "mudd/kernels/gemm/gemm.h"

namespace mudd::test {

using Floats = std::vector<float>;

inline std::vector<int64_t> edges(int64_t t) { return {1, t - 1, t, t + 1, 2 * t + 1}; }

inline Floats transpose(const Floats& x, int64_t rows, int64_t cols) {
  Floats t(x.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) t[j * rows + i] = x[i * cols + j];
  return t;
}

// A matrix with rows `stride` apart in either type; the gaps hold nan so that reading them shows.
struct Matrix {
  int64_t rows, cols, stride;
  DType type;
  Floats f;
  std::vector<bf16> h;

  Matrix(DType t, const Floats& x, int64_t r, int64_t c, int64_t gap = 3)
      : rows(r), cols(c), stride(c + gap), type(t) {
    f.assign(static_cast<size_t>(rows * stride), std::numeric_limits<float>::quiet_NaN());
    h.assign(f.size(), bf16{0x7fc0});
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) {
        f[i * stride + j] = x[i * cols + j];
        h[i * stride + j] = to_bf16(x[i * cols + j]);
      }
  }
  Cells cells() { return type == DType::bf16 ? Cells(h.data()) : Cells(f.data()); }

  // Return the stored value, or the value that a GEMM of the compute type reads.
  Floats seen(DType compute = DType::f32) const {
    Floats x;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) {
        const float stored = type == DType::bf16 ? from_bf16(h[i * stride + j]) : f[i * stride + j];
        x.push_back(compute == DType::bf16 ? from_bf16(to_bf16(stored)) : stored);
      }
    return x;
  }
  bool gaps_untouched() const {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = cols; j < stride; ++j)
        if (!std::isnan(f[i * stride + j]) || h[i * stride + j].bits != 0x7fc0) return false;
    return true;
  }
};

struct Packed {
  std::vector<char> bytes;

  // In two calls: a range must not touch its neighbours.
  Packed(const GemmKernels& kernels, const Floats& b, int64_t k, int64_t n, bool transposed) {
    const int64_t panels = (n + kernels.nr - 1) / kernels.nr, middle = panels / 2;
    bytes.assign(static_cast<size_t>(kernels.panel_bytes(k, panels * kernels.nr)), '\xff');
    const Floats stored = transposed ? transpose(b, k, n) : b;
    for (int part = 0; part < 2; ++part)
      (transposed ? kernels.pack_transposed : kernels.pack)(
          stored.data(), transposed ? k : n, k, n, part ? middle : 0, part ? panels : middle, bytes.data());
  }
};

// Run a GEMM of contiguous operands: a [m, k] and c [m, n].
inline GemmBlock product_of(ConstCells a, const void* b, Cells c, int64_t m, int64_t n, int64_t k,
                            DType compute = DType::f32) {
  return {.a = a, .lda = k, .b = b, .c = c, .ldc = n, .m = m, .n = n, .k = k, .compute = compute, .epilogue = {}};
}

// dW [m, n] over rows of x [rows, m] and dy [rows, n] without gaps. cuts: shards + 1 row numbers.
inline GradBlock gradient_of(ConstCells x, ConstCells dy, const int64_t* cuts, int shards, int64_t m, int64_t n,
                             float* out, float* scratch, DType compute = DType::f32) {
  return {.x = x,
          .ldx = m,
          .dy = dy,
          .ldy = n,
          .cuts = cuts,
          .shards = shards,
          .m = m,
          .n = n,
          .out = out,
          .ldo = n,
          .scratch = scratch,
          .compute = compute};
}

// Return the rows of both compute types; those of f32 only read bf16 operands here.
template <class Body>
void for_each_gemm(Body body) {
  for (DType compute : {DType::f32, DType::bf16})
    for_each_row(gemm_rows(compute), [&](const auto& row) { body(*row.kernels, compute); });
}

}  // namespace mudd::test
