// units: hardware bf16 against its emulation, and the threaded drivers against one block: bit for bit.
#include <cmath>
#include <cstdio>
#include <string>

#include "compare.h"
#include "gemm_operands.h"
#include "mudd/base/parallel.h"
#include "mudd/kernels/gemm/gemm.h"

using namespace mudd;
using namespace mudd::test;

namespace {

// Return values whose products range from denormals to the largest floats.
Floats far_apart(uint64_t seed, int64_t n) {
  Floats x = numbers(seed, n);
  for (int64_t i = 0; i < n; ++i)
    x[i] = std::ldexp(x[i], static_cast<int>((i * 37 + static_cast<int64_t>(seed)) % 200) - 140);
  return x;
}

const GemmKernels* row_at(const std::string& level) {
  for (const auto& row : gemm_rows(DType::bf16))
    if (level == row.level && row.runs_here()) return row.kernels;
  return nullptr;
}

}  // namespace

TEST_CASE("the bf16 units give the bits of their emulation") {
  for (const std::string level : {"avx512_bf16", "amx_bf16"}) {
    const GemmKernels *real = row_at(level), *emulated = row_at("emu_" + level);
    REQUIRE(emulated);
    std::printf("  %s%s\n", level.c_str(), real ? "" : ": not on this CPU");
    if (!real) continue;
    for (int64_t m : {1, 2, 17, 33})
      for (int64_t k : {1, 2, 33, 515}) {
        const int64_t n = 67, cuts[] = {0, k / 2, k};
        const Floats a = far_apart(1, m * k), b = far_apart(2, k * n), x = far_apart(3, k * m),
                     dy = far_apart(4, k * n);
        Floats c[2], dw[2];
        std::vector<bf16> half[2];  // also rounded by the units
        for (int i = 0; i < 2; ++i) {
          const GemmKernels& kernels = i ? *emulated : *real;
          const Packed packed(kernels, b, k, n, true);
          c[i].resize(static_cast<size_t>(m * n));
          half[i].resize(c[i].size());
          for (Cells out : {Cells(c[i].data()), Cells(half[i].data())})
            kernels.multiply(product_of(a.data(), packed.bytes.data(), out, m, n, k, DType::bf16));
          dw[i].resize(static_cast<size_t>(m * n));
          Floats scratch(static_cast<size_t>(kernels.grad_scratch(m, n, 2)));
          kernels.weight_gradient(
              gradient_of(x.data(), dy.data(), cuts, 2, m, n, dw[i].data(), scratch.data(), DType::bf16));
        }
        CHECK(same_bits(half[0], half[1]));
        CHECK(same_bits(c[0], c[1]));
        CHECK(same_bits(dw[0], dw[1]));
      }
  }
}

TEST_CASE("bf16: where an emulation is asked for, its row is taken") {
  if (const char* level = emulated_level()) CHECK(&gemm_kernels(DType::bf16) == row_at(level));
}

TEST_CASE("bf16: threads and drivers give the bits of one block") {
  const int64_t m = 101, n = 531, k = 67;
  const Floats w = numbers(2, k * n);
  Matrix a(DType::bf16, numbers(1, m * k), m, k), dy(DType::bf16, numbers(3, m * n), m, n);
  const std::vector<int64_t> cuts = {0, 49, 101};
  const GemmKernels& kernels = gemm_kernels(DType::bf16);
  Floats want(static_cast<size_t>(m * n)), want_dw(static_cast<size_t>(k * n));
  const Packed packed(kernels, w, k, n, false);
  GemmBlock g{.a = a.cells(),
              .lda = a.stride,
              .b = packed.bytes.data(),
              .c = want.data(),
              .ldc = n,
              .m = m,
              .n = n,
              .k = k,
              .compute = DType::bf16,
              .epilogue = {}};
  kernels.multiply(g);
  GradBlock d{.x = a.cells(),
              .ldx = a.stride,
              .dy = dy.cells(),
              .ldy = dy.stride,
              .cuts = cuts.data(),
              .shards = 2,
              .m = k,
              .n = n,
              .out = want_dw.data(),
              .ldo = n,
              .compute = DType::bf16};
  Floats block(static_cast<size_t>(kernels.grad_scratch(k, n, 2)));
  d.scratch = block.data();
  kernels.weight_gradient(d);
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    for (bool transposed : {false, true}) {
      std::vector<char> pack(static_cast<size_t>(packed_bytes(k, n, DType::bf16)));
      const Floats stored = transposed ? transpose(w, k, n) : w;
      pack_weight(stored.data(), transposed ? n : k, transposed ? k : n, transposed, pack.data(), DType::bf16);
      CHECK(same_bits(pack, packed.bytes));
      Floats c(want.size());
      g.b = pack.data();
      g.c = c.data();
      multiply(g);
      CHECK(same_bits(c, want));
    }
    Floats dw(want_dw.size());
    Floats scratch(static_cast<size_t>(grad_scratch_bytes(k, n, 2, 1, DType::bf16)) / sizeof(float));
    d.out = dw.data();
    d.scratch = scratch.data();
    d.scratch_bytes = static_cast<int64_t>(scratch.size() * sizeof(float));
    weight_gradient(d);
    CHECK(same_bits(dw, want_dw));
  }
  set_num_threads(0);
}
