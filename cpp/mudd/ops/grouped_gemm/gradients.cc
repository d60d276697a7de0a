// The gradients of the weights of grouped_gemm: one GEMM for each expert and weight, all in one batch.
#include "mudd/ops/grouped_gemm/node.h"

namespace mudd {

// Return the left operand of the gradient of weight i: left^T right. x: of the slots.
GroupedGemm::SlotTensor GroupedGemm::left_of(const Run& run, int i, const SlotTensor& x) const {
  if (i == kGateUpB) return {low_rows(low_gate_up_.u(run), low_gate_up_)};
  if (i == kDownB) return {low_rows(low_down_.u(run), low_down_)};
  if (i == kDown || i == kDownA) return {rows_of({run.scratch() + inner_at_, compute_})};  // h
  return x;
}

// Return the right operand; part: 1 for up in the B of gate and up. dy: of the slots.
GroupedGemm::SlotTensor GroupedGemm::right_of(const Run& run, int i, int64_t part, const SlotTensor& dy) const {
  if (i == kGateUpA) return {low_rows(low_gate_up_.du(run), low_gate_up_)};
  if (i == kDownA) return {low_rows(low_down_.du(run), low_down_)};
  if (i == kDown || i == kDownB) return dy;
  return {rows_of(saved_rows(run, i == kUp || part == 1 ? kSavedUp : kSavedGate))};  // db, da
}

// Compute the gradients of every expert's weights; all lists are in the node, without allocation. x, dy: of the
// slots; h, da, db and du are the results of backward_of.
void GroupedGemm::weight_gradients_of(const Run& run, const ExpertSlots& slots, const SlotTensor& x,
                                      const SlotTensor& dy) {
  size_t n = 0;
  for (int64_t e = 0; e < own_; ++e)
    for (int i : kWeights)
      for (int64_t part = 0; part < parts_of(i) && run.wants(i); ++part)
        n += list_gradients(run, slots, left_of(run, i, x), right_of(run, i, part, dy), e, i, part, n);
  weight_gradients({blocks_.data(), n});
}

// Write one GEMM of the gradient of weight i of an expert to blocks_[n], or one for the tokens of each rank;
// return the count.
size_t GroupedGemm::list_gradients(const Run& run, const ExpertSlots& slots, const SlotTensor& left,
                                   const SlotTensor& right, int64_t e, int i, int64_t part, size_t n) {
  const GradSink& sink = run.sink(i);
  const int ranks = sink.rank_stride > 0 ? ranks_ : 1, shards = slots.shards / ranks;
  const int64_t size = in_of(i) * out_of(i);
  for (int rank = 0; rank < ranks; ++rank, ++n) {
    const int64_t offset = (e * parts_of(i) + part) * size + rank * sink.rank_stride;
    GradBlock& g = blocks_[n] = {};
    g.compute = compute_;
    g.x = left.first(0);
    g.ldx = left.rows.stride;
    g.x_rows = left.numbers;
    g.dy = right.first(0);
    g.ldy = right.rows.stride;
    g.dy_rows = right.numbers;
    g.cuts = slots.cuts_of(e) + rank * shards;
    g.shards = shards;
    g.m = in_of(i);
    g.n = g.ldo = out_of(i);
    g.out = sink.out + offset;
    const float** add = adds_.data() + n * kMaxGradAdds;
    for (int a = 0; a < sink.n_add; ++a) add[a] = sink.add[a] + offset;
    g.add = add;
    g.n_add = sink.n_add;
    g.scratch = at(run, gemms_at_);
    g.scratch_bytes = gemm_bytes_;
  }
  return static_cast<size_t>(ranks);
}

}  // namespace mudd
