// moe_route: the top-k router of a mixture of experts (Shazeer et al. 2017; Mixtral: Jiang et al. 2024,
// section 2.1).
//   z = x' w,  p = softmax(z) over all E,  S = the k largest p (ties: the lower expert),  gate_i = p_i / sum_{j in
//   S} p_j
// x' is x; with `jitter` e, if gradients are requested, times uniform random values in [1 - e, 1 + e] (Fedus et
// al. 2021, 2.2).
//
// Inputs: x_BTD (in bf16 too, as its gradient; the router works in fp32 in every graph), w_DE fp32 (weight-like),
// segments i32 [B, T] and key_mask i32 [B, T] (both optional: a token
//   with segment 0 or mask 0 is padding; it is routed, but no metric counts it).
// Outputs:
//   0 gates fp32 [B, T, k], best first, 0 for a slot dropped by capacity; not normalised again after dropping
//   1 experts i32 [B, T, k], -1 for a dropped slot
//   2 metrics fp32 [B, 4 E + 3], sums over each sample (RouteMetrics names the columns)
// With capacity_factor f > 0 an expert takes at most floor(T k f / E) slots of a sequence (option capacity_scope),
// or ceil(tokens k f / E) of a shard. drop_policy position drops the last of the slots t k + r, probs those with
// the smallest gates (ties: the later token).
// Saved: p, the gates and experts before dropping, the norms of the softmax; with jitter nothing more (the values
// are drawn again). Backward, with dg the gradient of the kept gates, G the gradient of the probability sums, and
// Z the gradient of the squared lse:
//   dz_j = g_j (dg_j - sum_{q in S} g_q dg_q)  [j in S]  +  p_j (G_j - sum_e G_e p_e)  +  2 Z lse p_j,
//   dx' = dz w^T,  dw = x'^T dz.
// Counts have no gradient.
#pragma once

#include <cstdint>

#include "mudd/base/kernel_table.h"

namespace mudd {

// Columns of `metrics`. Counts are integers in fp32: exact up to 2^24 a sample.
struct RouteMetrics {
  int64_t experts;

  int64_t routed(int64_t e) const { return e; }  // slots of real tokens that chose e, before dropping
  int64_t probability(int64_t e) const { return experts + e; }  // sum of p_e over real tokens
  int64_t kept(int64_t e) const { return 2 * experts + e; }     // slots of all tokens that e computes
  int64_t dropped(int64_t e) const {
    return 3 * experts + e;
  }  // slots of all tokens that chose e and were dropped
  int64_t squared_lse() const { return 4 * experts; }  // sum of log(sum_e exp z_e)^2 over real tokens
  int64_t tokens() const { return 4 * experts + 1; }   // real tokens
  int64_t entropy() const { return 4 * experts + 2; }  // sum of -sum_e p_e ln p_e over real tokens, nats
  int64_t width() const { return 4 * experts + 3; }
};
constexpr int64_t route_figures_experts(int64_t width) { return (width - 3) / 4; }

// The softmax of a row: its largest logit, the sum of exp(z - max), and sum_e p_e (z_e - max).
struct RouteRow {
  float max, sum, mean;
};

struct MoeRouteKernels {
  // Replace rows of logits [E], E apart, by probabilities.
  void (*softmax)(int64_t rows, int64_t experts, float* logits, RouteRow* stats);
  // dz[e] += p[e] (G[e] - sum G p) + p[e] z_slope, G and dz [E].
  void (*balance)(int64_t experts, const float* p, const float* G, float z_slope, float* dz);
};

MUDD_DECLARE_KERNELS(MoeRouteKernels, moe_route_f32)

std::span<const KernelRow<MoeRouteKernels>> moe_route_rows();

}  // namespace mudd
