// grouped_gemm: all experts of a mixture as grouped GEMMs over tokens sorted by expert (Gale et al. 2022, Tan
// et al. 2024). The GEMM gathers the tokens of an expert while it loads them. W_gate and W_up share one
// epilogue that also multiplies by the router's gate, and the k results of a token are added in one sweep.
//   h_s = A(x_t Wg_e) * (x_t Wu_e) * gate_s   for slot s = (t, r) with e = experts[t, r]
//   y_t = residual_t + sum_r h_s Wd_e,        r = 0 .. k-1 in order
// A token without any expert (all of its slots are -1) outputs residual_t + x_t (full_drop passthrough) or
// residual_t (zero).
//
// With low-rank adapters (expert_adapter.h) each W_e is W_e + scale A_e B_e, which is never computed.
//
// Inputs: x_BTD, gates fp32 [B, T, k], experts i32 [B, T, k] (-1: no expert), Wg and Wu fp32 [E, D, F], Wd
//   fp32 [E, F, D] (all three weight-like), residual_BTD (optional). A and B of adapters: optional and
//   weight-like. Output: y_BTD; it may take over the residual.
// packed_at_once changes no bit; at least one expert is packed at a time. No cache exceeds its default. Rows
// are B T k at most; the rows of an expert are counted at run time and may be 0. In bf16 the three GEMMs have
// bf16 operands; the results of a token's slots are added in fp32. Saved: x Wg and x Wu of every slot (2 F
// elements of the compute type each), the order of the slots, u of the adapters.
// Backward, with d_s = dy_t Wd_e^T (before the gate) and h'_s = h_s / gate_s:
//   dgate_s = <d_s, h'_s>,  da_s = gate_s d_s * (x Wu) * A'(x Wg),  db_s = gate_s d_s * A(x Wg)
//   dx_t = sum_r (da_s Wg_e^T + db_s Wu_e^T) (+ dy_t where passed through),  dresidual = dy (the executor passes
//   it) dWg_e = sum_s x_t^T da_s,  dWu_e = sum_s x_t^T db_s,  dWd_e = sum_s h_s^T dy_t, over the slots of e by
//   shards.
// Rows of y and dx depend on their own token only; sums over tokens follow contracts 2.
#pragma once

#include <cstdint>

#include "mudd/base/activation.h"
#include "mudd/base/kernel_table.h"

namespace mudd {

// Rows of slots in backward, each F wide and without gaps.
struct SlotRows {
  float* gate = nullptr;         // x Wg, becomes da
  float* up = nullptr;           // x Wu, becomes db
  float* inner = nullptr;        // d, becomes h
  const float* scale = nullptr;  // [rows] gates
  float* dscale = nullptr;       // [rows] receives dgate
};

struct GroupedGemmKernels {
  void (*bwd)(int64_t rows, int64_t width, Activation activation, const SlotRows& slots);
  // out[d] = base[d] + (((rows[0][d] + rows[1][d]) + ...) ); base may be null or out.
  void (*combine)(int64_t width, const float* base, const float* const* rows, int64_t count, float* out);
};

MUDD_DECLARE_KERNELS(GroupedGemmKernels, grouped_gemm_f32)

std::span<const KernelRow<GroupedGemmKernels>> grouped_gemm_rows();

}  // namespace mudd
