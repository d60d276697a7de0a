// attention_bf16 by vdpbf16ps.
#include "mudd/ops/attention/dot-inl.h"
#include "mudd/ops/attention/row-inl.h"

namespace mudd::MUDD_ISA {

const AttentionKernels attention_bf16 = row_of_unit<Dot>();

}  // namespace mudd::MUDD_ISA
