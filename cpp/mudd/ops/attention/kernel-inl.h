// Compiled once for each ISA level, with its Vec (base/simd/vec.h); see attention.h for the contract.
//
// In forward, scores are stored transposed, S^T [key][query]: lanes are queries. So only the query tile is
// transposed, once, the softmax has no sums across lanes, and decoding fills lanes with the heads of a group.
#include "mudd/ops/attention/row-inl.h"

namespace mudd::MUDD_ISA {

const AttentionKernels attention_f32 = row_of_unit<Wide>();

}  // namespace mudd::MUDD_ISA
