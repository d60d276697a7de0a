// gemm: the matmuls of every op, for two compute types. Operands and results lie in memory as f32 or
// bf16 whatever the compute type (Cells).
//
// f32: products of fp32 numbers; bf16 operands are converted when they are copied.
// bf16: fp32 operands are rounded to bf16 (nearest even) when they are copied, packed B is bf16; products are
// exact, sums fp32. C is rounded once, when it is stored as bf16.
//
// Sum order (contracts 1): every element of C is ONE chain c = fma(a[m,k], b[k,n], c) over k = 0..K-1, starting
// from 0 (or from `start`, or from C when `accumulate`), whatever M, the tile or the cache blocking. So a row
// never depends on its neighbours, and decoding one row gives the bits of the full pass.
//
// Packed operand B [K, N]: panels of nr columns, panel p holds columns [p nr, (p+1) nr), laid out [K][nr]
// (k outer), the last panel padded with zeros. nr, the type of the numbers and the multiple to which K is padded
// belong to the kernel row, so packed data is never stored.
// Packed memory and scratch are best aligned to 64 bytes (any alignment gives the same bits).
#pragma once

#include <cstdint>
#include <span>

#include "mudd/base/activation.h"
#include "mudd/base/kernel_table.h"
#include "mudd/base/shard_tree.h"
#include "mudd/base/types.h"

namespace mudd {

// C = activation(sum + bias) + residual, in this order; with a gate C = activation(gate) (sum + bias) row_scale +
// residual. Pointers are those of the block's first row / column; null where absent.
struct Epilogue {
  const float* bias = nullptr;  // [n]
  Activation activation = Activation::none;
  Cells pre_activation = {};  // receives sum + bias when backward needs it, [m, n]
  int64_t pre_stride = 0;
  ConstCells residual = {};  // [m, n]; may be C itself
  int64_t residual_stride = 0;
  ConstCells gate = {};  // [m, n]; may be C itself: the other half of a gated unit
  int64_t gate_stride = 0;
  const float* row_scale = nullptr;  // [m], only with a gate
  bool rounds_pre = false;  // without a gate: activation and pre_activation get sum + bias rounded to bf16
};

// A stored matrix [rows, cols] that is to be packed for products that sum over its rows (plain) or its columns
// (transposed); or a stack of them, packed one behind the other.
struct Unpacked {
  ConstCells w = {};  // f32, or a frozen weight as it is stored (bf16, f16); null: nothing to do
  int64_t rows = 0, cols = 0;
  bool transposed = false;
  void* to = nullptr;  // packed_bytes for each
  int64_t count = 1;
};

// One thread's block of C[m, n] = A[m, k] B[k, n]. C may overlap no operand but the residual.
struct GemmBlock {
  ConstCells a = {};  // row-major, lda elements between rows
  int64_t lda = 0;
  const int32_t* a_rows = nullptr;  // row r of the block is row a_rows[r] of A (gathered); null: row r
  const void* b = nullptr;          // packed for `compute`: first panel of the block
  Unpacked pack = {};               // of a whole product, in place of b: packed first, by the same threads
  Cells c = {};
  int64_t ldc = 0;
  int64_t m = 0, n = 0, k = 0;  // n counts columns from the first panel's first; the last panel may be partial
  bool accumulate = false;      // start the chain from C
  // Start the chain from here: [m, n] in fp32 with rows of whole panels, aligned to 64 bytes. Null: from 0, or C.
  const float* start = nullptr;
  int64_t start_stride = 0;
  DType compute = DType::f32;
  // For tiles out of vectors:
  bool fetch_b = true;     // B is probably not in L2 yet: panels are fetched ahead
  ConstCells next_a = {};  // rows of A that this thread probably wants next: fetched ahead, never used
  Epilogue epilogue;
};

// One thread's block of dW[i, j] = sum over rows r of x[r, i] dy[r, j], rows cut into shards: one chain per
// shard over r in order, then the balanced binary tree over shards, then the adds: out = add[n-1] + ( ... +
// (add[0] + sum)) as GradSink (graph/node.h) says. Also any A^T B (attention: dv = p^T do) with one shard.
struct GradBlock {
  ConstCells x = {};  // [rows, ...], first column of the block
  int64_t ldx = 0;
  ConstCells dy = {};
  int64_t ldy = 0;
  // Row r of the sum is row x_rows[r] of x and dy_rows[r] of dy (gathered); null: row r.
  const int32_t *x_rows = nullptr, *dy_rows = nullptr;
  const int64_t* cuts = nullptr;  // shards + 1 row numbers, ascending
  int shards = 0;                 // at most kMaxShards
  int64_t m = 0, n = 0;           // block of dW: m columns of x, n columns of dy
  float* out = nullptr;           // [m, n], ldo elements between rows
  int64_t ldo = 0;
  // One shard in several calls: its chain goes on from here (shaped and strided like out, may be out), not from 0.
  const float* start = nullptr;
  const float* const* add = nullptr;  // n_add arrays shaped and strided like out, already at the block
  int n_add = 0;
  float* scratch = nullptr;   // one thread: GemmKernels::grad_scratch floats; a whole product: grad_scratch_bytes
  int64_t scratch_bytes = 0;  // of a whole product: what was booked (it bounds the threads that can take part)
  DType compute = DType::f32;
};
constexpr int kMaxAdds = 16;
constexpr int64_t kStaysInL2 = 768 << 10;  // bytes of packed B, in an L2 of 1 MiB, the least of most CPUs

struct GemmKernels {
  int mr, nr;          // register tile: rows of A, columns of a panel
  DType packed;        // numbers of packed B
  int64_t depth_unit;  // K of a packed panel is padded with zeros to a multiple of this
  // Packs panels [panel_begin, panel_end) of B[k, n] = b[k * row_stride + n] (plain) ...
  void (*pack)(const float* b, int64_t row_stride, int64_t k, int64_t n, int64_t panel_begin, int64_t panel_end,
               void* packed);
  // ... or of B[k, n] = b[n * row_stride + k] (transposed). `packed` is the start of panel 0.
  void (*pack_transposed)(const float* b, int64_t row_stride, int64_t k, int64_t n, int64_t panel_begin,
                          int64_t panel_end, void* packed);
  void (*multiply)(const GemmBlock& block);
  int64_t kept_b;  // bytes of packed B that rows of A best pass at a time; 0: few columns, which many rows pass

  // Blocks of dW are worked on at most this large at a time: the best size of a task.
  int64_t grad_m, grad_n;
  int64_t pack_x, pack_dy;  // multiply-adds in the time that packs an element
  // dW of a block; block.scratch holds grad_scratch(m, n, shards) floats (the same for all m, n above grad_m,
  // grad_n).
  int64_t (*grad_scratch)(int64_t m, int64_t n, int shards);
  void (*weight_gradient)(const GradBlock& block);

  // Bytes of a packed B[k, n], n a multiple of nr: also where the panel of column n begins.
  int64_t panel_bytes(int64_t k, int64_t n) const {
    return (k + depth_unit - 1) / depth_unit * depth_unit * n * size_of(packed);
  }
};

// gemm_f32 and gemm_bf16, a row per level: those of compute type f32, and of bf16.
MUDD_DECLARE_KERNELS(GemmKernels, gemm_f32)
MUDD_DECLARE_KERNELS(GemmKernels, gemm_bf16)
MUDD_DECLARE_UNIT_KERNELS(GemmKernels, gemm_bf16)

std::span<const KernelRow<GemmKernels>> gemm_rows(DType compute = DType::f32);
// The best row of the active level, chosen once.
const GemmKernels& gemm_kernels(DType compute = DType::f32);

// Bytes of a packed B[k, n].
int64_t packed_bytes(int64_t k, int64_t n, DType compute = DType::f32);

// Threaded drivers used by ops (gemm.cc, pack_tasks.cc): they cut M and N into blocks by shape.
void pack_weight(ConstCells w, int64_t rows, int64_t cols, bool transposed, void* packed,
                 DType compute = DType::f32);
void pack_weights(std::span<const Unpacked> matrices, DType compute);  // all in one parallel region
// C[m, n] = A[m, k] B (+ epilogue); pointers in `whole` are those of the whole product.
void multiply(const GemmBlock& whole);
// dW of a whole product; `scratch` holds `scratch_bytes` bytes: grad_scratch_bytes(m, n, shards) when it was
// booked.
void weight_gradient(const GradBlock& whole);
// Several products at once, so that threads do not wait for each other between them; one after the other where two
// have the same `out`. All share the compute type and one scratch, which holds the largest grad_scratch_bytes.
void weight_gradients(std::span<const GradBlock> wholes);
// Both: packing, then the blocks of the gradient, then the product: threads that are done early go on with the
// small tasks of the product. If C begins inside of dW (a value times itself), the product first, then the
// gradient, which adds to it.
void multiply_beside(const GemmBlock& whole, const GradBlock& gradient);
// products: how many of this size go together.
int64_t grad_scratch_bytes(int64_t m, int64_t n, int shards, int products = 1, DType compute = DType::f32);

}  // namespace mudd
