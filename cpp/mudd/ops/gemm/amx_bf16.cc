// gemm_bf16 by tdpbf16ps.
#define MUDD_GEMM_TILES
#include "mudd/ops/gemm/row-inl.h"
#include "mudd/ops/gemm/tiles-inl.h"

namespace mudd::MUDD_ISA {

const GemmKernels gemm_bf16 = row_of_unit<TileUnit>();

}  // namespace mudd::MUDD_ISA
