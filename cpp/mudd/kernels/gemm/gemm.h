// gemm: the matmuls of all ops, for two compute types. Operands and results are stored as f32 or bf16,
// independent of the compute type (Cells).
//
// f32: fp32 multiply-adds; bf16 operands are converted when they are copied.
// bf16: fp32 operands are rounded to bf16 (nearest even) when they are copied, packed B is bf16; multiplications
// are exact, sums are fp32. C is rounded once, when it is stored as bf16.
//
// Sum order (contracts 1): every element of C is ONE chain c = fma(a[m,k], b[k,n], c) over k = 0..K-1, from 0
// (or from `start`, or from C if `accumulate`), for every M, tile and cache blocking. So a row never depends on
// its neighbours, and decoding one row has the bits of the full pass.
//
// Packed operand B [K, N]: panels of nr columns. Panel p contains columns [p nr, (p+1) nr) with layout [K][nr]
// (k outer); the last panel is padded with zeros. nr, the element type and the padding of K depend on the
// kernel row, so packed data is never stored in files. Align packed memory and scratch to 64 bytes for speed;
// the bits are the same without.
#pragma once

#include <cstdint>
#include <span>

#include "mudd/base/activation.h"
#include "mudd/base/kernel_table.h"
#include "mudd/base/shard_tree.h"
#include "mudd/base/types.h"

namespace mudd {

// C = activation(sum + bias) + residual, in this order; with a gate C = activation(gate) (sum + bias) row_scale
// + residual. Pointers are at the block's first row or column, or null.
struct Epilogue {
  const float* bias = nullptr;  // [n]
  Activation activation = Activation::none;
  Cells pre_activation = {};  // receives sum + bias if backward needs it, [m, n]
  int64_t pre_stride = 0;
  ConstCells residual = {};  // [m, n]; may be C itself
  int64_t residual_stride = 0;
  ConstCells gate = {};  // [m, n]; may be C itself: the other half of a gated unit
  int64_t gate_stride = 0;
  const float* row_scale = nullptr;  // [m], only with a gate
  bool rounds_pre = false;           // without a gate: round sum + bias to bf16 for activation and pre_activation
};

// A stored matrix [rows, cols] to pack for GEMMs that sum over its rows (plain) or its columns (transposed); or
// a stack of such matrices, packed one after another.
struct Unpacked {
  ConstCells w = {};  // f32, or the stored type of a frozen weight (bf16, f16); null: nothing to do
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
  Unpacked pack = {};               // for a whole GEMM instead of b: the same threads pack it first
  Cells c = {};
  int64_t ldc = 0;
  int64_t m = 0, n = 0, k = 0;  // n starts at the first panel's first column; the last panel may be partial
  bool accumulate = false;      // start the chain from C
  // Start the chain from here: [m, n] in fp32 with rows of whole panels, aligned to 64 bytes. Null: from 0, or
  // C.
  const float* start = nullptr;
  int64_t start_stride = 0;
  DType compute = DType::f32;
  // For vector tiles:
  bool fetch_b = true;     // B is probably not in L2 yet: prefetch panels
  ConstCells next_a = {};  // rows of A that this thread probably reads next: prefetched, never used
  Epilogue epilogue;
};

// One thread's block of dW[i, j] = sum over rows r of x[r, i] dy[r, j], with rows grouped into shards: one
// chain per shard over r in order, then the balanced binary tree over shards, then the adds: out = add[n-1] + (
// ... + (add[0] + sum)), see GradSink (graph/node.h). Also any A^T B (attention: dv = p^T do) with one shard.
struct GradBlock {
  ConstCells x = {};  // [rows, ...], first column of the block
  int64_t ldx = 0;
  ConstCells dy = {};
  int64_t ldy = 0;
  // Row r of the sum is row x_rows[r] of x and dy_rows[r] of dy (gathered); null: row r.
  const int32_t *x_rows = nullptr, *dy_rows = nullptr;
  const int64_t* cuts = nullptr;  // shards + 1 row indices, ascending
  int shards = 0;                 // at most kMaxShards
  int64_t m = 0, n = 0;           // block of dW: m columns of x, n columns of dy
  float* out = nullptr;           // [m, n], ldo elements between rows
  int64_t ldo = 0;
  // One shard in several calls: its chain continues from here (shaped and strided like out, may be out).
  const float* start = nullptr;
  const float* const* add = nullptr;  // n_add arrays shaped and strided like out, offset to the block
  int n_add = 0;
  float* scratch = nullptr;   // GemmKernels::grad_scratch floats for a thread; grad_scratch_bytes for a whole GEMM
  int64_t scratch_bytes = 0;  // for a whole GEMM: the planned size, which limits the threads
  DType compute = DType::f32;
};
constexpr int kMaxAdds = 16;
constexpr int64_t kStaysInL2 = 768 << 10;  // bytes of packed B, for an L2 of 1 MiB, the smallest of most CPUs

struct GemmKernels {
  int mr, nr;          // register tile: rows of A, columns of a panel
  DType packed;        // element type of packed B
  int64_t depth_unit;  // K of a packed panel is padded with zeros to a multiple of this
  // Pack panels [panel_begin, panel_end) of B[k, n] = b[k * row_stride + n] (plain) ...
  void (*pack)(const float* b, int64_t row_stride, int64_t k, int64_t n, int64_t panel_begin, int64_t panel_end,
               void* packed);
  // ... or of B[k, n] = b[n * row_stride + k] (transposed). `packed` is the start of panel 0.
  void (*pack_transposed)(const float* b, int64_t row_stride, int64_t k, int64_t n, int64_t panel_begin,
                          int64_t panel_end, void* packed);
  void (*multiply)(const GemmBlock& block);
  int64_t kept_b;  // bytes of packed B that rows of A best pass at a time; 0: few columns and many rows

  // The largest block of dW to compute at a time: the best size of a task.
  int64_t grad_m, grad_n;
  int64_t pack_x, pack_dy;  // multiply-adds in the time of packing one element
  // Compute dW of a block. block.scratch has grad_scratch(m, n, shards) floats (constant for m, n above grad_m,
  // grad_n).
  int64_t (*grad_scratch)(int64_t m, int64_t n, int shards);
  void (*weight_gradient)(const GradBlock& block);

  // Bytes of a packed B[k, n], n a multiple of nr; also the offset of the panel of column n.
  int64_t panel_bytes(int64_t k, int64_t n) const {
    return (k + depth_unit - 1) / depth_unit * depth_unit * n * size_of(packed);
  }
};

// gemm_f32 and gemm_bf16, a row per level, for compute types f32 and bf16.
MUDD_DECLARE_KERNELS(GemmKernels, gemm_f32)
MUDD_DECLARE_KERNELS(GemmKernels, gemm_bf16)
MUDD_DECLARE_UNIT_KERNELS(GemmKernels, gemm_bf16)

std::span<const KernelRow<GemmKernels>> gemm_rows(DType compute = DType::f32);
// The best row of the active level, chosen once.
const GemmKernels& gemm_kernels(DType compute = DType::f32);

// Bytes of a packed B[k, n].
int64_t packed_bytes(int64_t k, int64_t n, DType compute = DType::f32);

// Threaded drivers for ops (gemm.cc, pack_tasks.cc): they split M and N into blocks by shape.
void pack_weight(ConstCells w, int64_t rows, int64_t cols, bool transposed, void* packed,
                 DType compute = DType::f32);
void pack_weights(std::span<const Unpacked> matrices, DType compute);  // all in one parallel region
// Compute C[m, n] = A[m, k] B (+ epilogue); pointers in `whole` are at the start of the matrices.
void multiply(const GemmBlock& whole);
// Compute dW of a whole GEMM; `scratch` has `scratch_bytes` bytes: grad_scratch_bytes(m, n, shards) at planning
// time.
void weight_gradient(const GradBlock& whole);
// Compute several gradients in one parallel region, so that threads do not wait between them; one after another
// if two have the same `out`. All share the compute type and one scratch of the largest grad_scratch_bytes.
void weight_gradients(std::span<const GradBlock> wholes);
// Compute both: threads pack, then compute blocks of the gradient, then blocks of the GEMM, whose small tasks
// fill the idle time of early threads. If C starts inside dW (a value times itself), the GEMM comes first and
// the gradient adds to it.
void multiply_beside(const GemmBlock& whole, const GradBlock& gradient);
// products: the count of gradients of this size that share the region.
int64_t grad_scratch_bytes(int64_t m, int64_t n, int shards, int products = 1, DType compute = DType::f32);

}  // namespace mudd
