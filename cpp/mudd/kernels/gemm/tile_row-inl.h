// The kernel-table row of the AMX tile registers. Built for the levels amx_bf16 and emu_amx_bf16.
#pragma once

#include "mudd/kernels/gemm/tile_gradient-inl.h"
#include "mudd/kernels/gemm/tile_multiply-inl.h"

namespace mudd::MUDD_ISA {

const GemmKernels gemm_bf16 = {.mr = kMr,
                               .nr = kNr,
                               .packed = TileUnit::kPacked,
                               .depth_unit = TileUnit::kDepthUnit,
                               .pack = pack<TileUnit>,
                               .pack_transposed = pack_transposed<TileUnit>,
                               .multiply = tile_multiply,
                               .kept_b = 1 << 20,
                               .grad_m = kTileGradM,
                               .grad_n = kTileGradN,
                               .pack_x = 128,
                               .pack_dy = 64,
                               .grad_scratch = tile_grad_scratch,
                               .weight_gradient = tile_weight_gradient};

}  // namespace mudd::MUDD_ISA
