// depth_mix: the inputs of a block as weighted sums of all earlier states, with weights computed per token from
// the newest one (MUDDFormer, Xiao et al. 2025, arXiv 2502.12170; docs/maths/muddformer.md, 1.2, 1.3, 5.1).
//
// l states X_j, C streams; per token, with X = `newest` if present, else the last state:
//   u = rms(X) [* generator_gain],  A[c, j] = (act(u w1) w2)[c l + j] + bias[c, j]    (A = bias without w1, w2)
//   P_c = sum_j A[c, j] X_j
//   stream c = v_c gain_c / rms(v_c) if gain_c is present, else v_c;   v_c = P_c [+ X when `direct`]
//   with post_norm the last stream is X + P gain / rms(P) instead.
// Each state is read once for all streams, which are written in the type of the block's GEMMs.
//
// Inputs (Input below): bias [C, l], C in 1..4; w1 [D, K], w2 [K, C l], both or none; generator_gain [D]; gains
// [D] of the leading streams (a gap is an error); newest like a state; then the l states [..., D], any row
// stride. Outputs: C streams, each like a state. States, streams and their gradients may be bf16. Saved: A, u
// w1 (in the compute type), the inverse rms of the newest state and of the normalised streams. Backward reads a
// token's states twice while they are in cache: first it recomputes P_c of the normalised streams; then it
// computes for each state the dot products with the stream gradients G_c (dA) and adds the sum of A[c, j] G_c
// to the gradient of the state. The generator comes last.
#pragma once

#include <cstdint>

#include "mudd/base/activation.h"
#include "mudd/base/kernel_table.h"

namespace mudd {

constexpr int kMaxStreams = 4;
constexpr int kMaxMixSources = 512;

// The arguments of one call; rows are counted from the start of each value.
struct DepthMixRows {
  int64_t width = 0;  // D
  int streams = 0, sources = 0;
  int normed = 0;          // streams 0 .. normed-1 are normalised
  bool post_norm = false;  // the last of them is normalised before `direct` is added
  const float* const* states = nullptr;
  const int64_t* state_strides = nullptr;
  const float* direct = nullptr;  // added to every stream; may be null
  int64_t direct_stride = 0;
  const float* weights = nullptr;  // A: row r at weights + r * weight_stride, [c * sources + j]
  int64_t weight_stride = 0;       // 0: the same for every token
  const float* gains[kMaxStreams] = {};
  float eps = 0;
  float* inverse = nullptr;  // [row][normed]: 1 / rms of the normalised streams; forward writes, backward reads
};

struct DepthMixOutputs {
  float* streams[kMaxStreams] = {};
  int64_t strides[kMaxStreams] = {};
};

struct DepthMixGradients {
  const float* streams[kMaxStreams] = {};  // null: zero
  int64_t strides[kMaxStreams] = {};
  float* const* states = nullptr;  // where null: not wanted
  const int64_t* state_strides = nullptr;
  const uint8_t* accumulate = nullptr;  // per state: add to what is there
  float* direct = nullptr;              // gradient of `direct`; may be one of the states'
  int64_t direct_stride = 0;
  bool direct_accumulate = false;  // false only where nothing else writes it
  float* weights = nullptr;        // dA [row][streams * sources], set
  float* gains[kMaxStreams] = {};  // the block's sums over its rows in row order, set; null: not wanted
  bool continues = false;          // add to the previous gain sums: a later piece of the block
};

struct DepthMixKernels {
  void (*fwd)(int64_t begin, int64_t end, const DepthMixRows& mix, const DepthMixOutputs& out);
  // scratch: streams * D floats.
  void (*bwd)(int64_t begin, int64_t end, const DepthMixRows& mix, const DepthMixGradients& grads, float* scratch);
  // hidden = act(pre), dpre = dhidden act'(pre), dscaled = scale[row] dpre (scale null: not written). Rows of pre,
  // hidden and dscaled count from `begin`, dhidden (overwritten by dpre) is contiguous from 0.
  void (*generator)(int64_t begin, int64_t end, int64_t width, Activation activation, const float* pre,
                    const float* scale, float* dhidden, float* hidden, float* dscaled);
};

MUDD_DECLARE_KERNELS(DepthMixKernels, depth_mix_f32)

std::span<const KernelRow<DepthMixKernels>> depth_mix_rows();

}  // namespace mudd
