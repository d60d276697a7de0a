// gemm_bf16 by tdpbf16ps, emulated.
#define MUDD_GEMM_TILES
#include "mudd/kernels/gemm/tile_row-inl.h"
