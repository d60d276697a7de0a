// attention_bf16 by the emulation of tdpbf16ps.
#include "mudd/ops/attention/row-inl.h"
#include "mudd/ops/attention/tiles-inl.h"

namespace mudd::MUDD_ISA {

const AttentionKernels attention_bf16 = row_of_unit<Tiled>();

}  // namespace mudd::MUDD_ISA
