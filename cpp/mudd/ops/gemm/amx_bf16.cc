// gemm_bf16 by tdpbf16ps.
#define MUDD_GEMM_TILES
#include "mudd/ops/gemm/tile_row-inl.h"
