// reduce: the sums of a training step that must not depend on threads (contracts 2 and 7).
//
// block_squares  sums of squares of gradients: fp32 inside fixed blocks of 4,096 elements (four chains of lanes).
// squared_norm   the blocks combined in double in their order.
// all_finite     whether a value has neither NaN nor infinity.
// sum_planes     gradients of processes by the balanced binary tree.
// shard_sum      doubles of the shards by the balanced binary tree.
#pragma once

#include <cstdint>
#include <span>

#include "mudd/base/kernel_table.h"
#include "mudd/base/row_gradient.h"
#include "mudd/base/types.h"

namespace mudd {

constexpr int64_t kNormBlock = 4096;
constexpr int kMaxPlanes = 4;

// Elements [begin, begin + n) of a parameter's gradient, the sum of up to four planes (the uses of a tied
// parameter), added in order. begin: a multiple of kNormBlock.
struct GradientPlanes {
  const float* planes[kMaxPlanes] = {};   // each of the whole parameter
  const RowTotal* rows[kMaxPlanes] = {};  // a plane with a row list; null: planes[i]
  int n_planes = 0;
  int64_t begin = 0, n = 0;
  int64_t first_block = 0;  // index of its first block in the output of block_squares
};

struct ReduceKernels {
  // Return the sum of squares of elements [0, n) of the sum of the planes.
  float (*squares)(int64_t n, const float* const* planes, int n_planes);
  // Return true if all elements are finite.
  bool (*finite)(int64_t n, const float* x);
  // out = the planes added by the tree of base/shard_tree.h; out may be one of them.
  void (*sum)(int64_t n, const float* const* planes, int count, float* out);
};

MUDD_DECLARE_KERNELS(ReduceKernels, reduce_f32)

std::span<const KernelRow<ReduceKernels>> reduce_rows();

// Return the count of blocks of a gradient of n elements.
constexpr int64_t norm_blocks(int64_t n) { return (n + kNormBlock - 1) / kNormBlock; }
// Write the sum of squares of each block of the gradients; other elements of `blocks` stay. NaN or infinity if
// an element is (or its square overflows fp32).
void block_squares(std::span<const GradientPlanes> gradients, std::span<double> blocks);
// Return the sum of the blocks, in their order.
double squared_norm(std::span<const double> blocks);

// Write the sum of 1 to kMaxShards planes by the tree of base/shard_tree.h to out[0, n); out may be one of
// them.
void sum_planes(std::span<const float* const> planes, float* out, int64_t n);
// The same on the calling thread, for threads other than the compute threads.
void sum_planes_alone(std::span<const float* const> planes, float* out, int64_t n);

// x: fp32 or bf16 rows.
bool all_finite(const Tensor& x);

// Return the sum over shards by a balanced binary tree: ((v0 + v1) + (v2 + v3)) + ....
double shard_sum(const double* values, int n);

}  // namespace mudd
