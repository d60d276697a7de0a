// Built once per level over Vec (base/simd/vec.h); see attention.h for the contract.
//
// In forward scores are kept turned, S^T [key][query]: lanes are queries. So only the query tile is transposed,
// once, the softmax has no sums across lanes, and decoding fills lanes with the heads of a group.
#include "mudd/ops/attention/backward-inl.h"
#include "mudd/ops/attention/forward-inl.h"

namespace mudd::MUDD_ISA {

const AttentionKernels attention_f32 = {kQueries, kK, fwd_scratch, fwd<Wide>, bwd_scratch<Wide>, delta, bwd<Wide>};

}  // namespace mudd::MUDD_ISA
