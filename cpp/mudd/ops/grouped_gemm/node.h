// The node of grouped_gemm: its memory plan (grouped_gemm.cc), its two passes (passes.cc), the gradients of its
// weights (gradients.cc), and the passes of experts that are sharded across ranks (ranks.cc). Private to this
// folder.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "mudd/base/arena.h"
#include "mudd/graph/node.h"
#include "mudd/graph/right_operand.h"
#include "mudd/ops/grouped_gemm/expert_adapter.h"
#include "mudd/ops/grouped_gemm/grouped_gemm.h"
#include "mudd/ops/grouped_gemm/slot_exchange.h"
#include "mudd/ops/grouped_gemm/slots.h"

namespace mudd {

class GroupedGemm : public Node {
 public:
  explicit GroupedGemm(const Attributes& a);

  const char* op() const override { return "grouped_gemm"; }
  bool native_bf16() const override { return true; }
  bool spends_saved() const override { return true; }
  bool weight_like(int i) const override { return is_stack(i) || adapter_of(i); }
  bool reads_stored(int i) const override { return is_stack(i); }
  bool backward_reads_input(int i) const override {
    return (i == kX && ranks_ == 1) || (is_stack(i) && packs_) || adapter_of(i);
  }
  int passes_gradient() const override { return has_residual_ ? kResidual : -1; }
  int in_place_input() const override { return has_residual_ ? kResidual : -1; }

  void infer(Inference& io) override;
  void forward(const Run& run) override;
  void backward(const Run& run) override;

 private:
  enum Input { kX, kGates, kExperts, kGate, kUp, kDown, kResidual, kGateUpA, kGateUpB, kDownA, kDownB };
  enum Saved { kSlots, kSavedGate, kSavedUp };
  static constexpr int64_t kFloat = sizeof(float);
  static constexpr int kMatrices = 3;
  static constexpr int kWeights[] = {kGate, kUp, kDown, kGateUpA, kGateUpB, kDownA, kDownB};
  // If the packed weights of a layer exceed this, the store keeps none for many rows: Mixtral-8x7B would have
  // 5.3 GiB a layer in bf16, for both directions.
  static constexpr int64_t kMostKept = int64_t{1} << 30;
  static constexpr int64_t kMaxChoices = 64;

  // A row for each slot: rows of a tensor by index, or its rows in order (null).
  struct SlotTensor {
    Tensor rows;
    const int32_t* numbers = nullptr;

    const int32_t* at(int64_t row) const { return numbers ? numbers + row : nullptr; }
    ConstCells first(int64_t row) const { return numbers ? rows.cells() : rows.cells() + row * rows.stride; }
  };

  // Experts whose weights are packed together.
  struct Group {
    int64_t begin, end;
  };
  // The panels of a group's weights for one direction: from the store, or packed at the start of the scratch.
  struct Weights {
    const GroupedGemm& op;
    Group group;
    const char* panels[kMatrices] = {};
    int64_t stride[kMatrices] = {};  // bytes

    Weights(const GroupedGemm& node, const Run& run, Group experts, Pack how, std::initializer_list<int> wanted);
    const void* of(int i, int64_t expert) const {
      return panels[i - kGate] + (expert - (op.packs_ ? group.begin : 0)) * stride[i - kGate];
    }
  };

  static float* at(const Run& run, int64_t bytes) { return reinterpret_cast<float*>(run.scratch() + bytes); }
  static bool is_stack(int i) { return i >= kGate && i <= kDown; }
  const ExpertAdapter* adapter_of(int i) const {
    return low_gate_up_.is(i) ? &low_gate_up_ : low_down_.is(i) ? &low_down_ : nullptr;
  }
  // The matrices of an expert in weight i: their shape [in, out] and count.
  int64_t in_of(int i) const;
  int64_t out_of(int i) const;
  int64_t parts_of(int i) const { return i == kGateUpB ? low_gate_up_.parts() : 1; }
  int64_t panel_bytes(int64_t k, int64_t n) const { return mudd::packed_bytes(k, n, compute_); }
  Cells saved_rows(const Run& run, int i) const { return {run.saved(i), compute_}; }
  int64_t one_packed() const { return std::max(panel_bytes(d_, f_), panel_bytes(f_, d_)); }
  int64_t packed_bytes() const { return aligned(group_ * one_packed()); }
  // Call work(group) for every group of experts, in order.
  template <class Work>
  void for_each_group(const Work& work) const {
    for (int64_t e = 0; e < own_; e += group_) work(Group{e, std::min(e + group_, own_)});
  }
  // Rows of a task: a cache block of the GEMM, halved if there are few tasks.
  int64_t step() const { return slots_ >= 96 * 32 ? 96 : 48; }
  ExpertSlots slots_of(const Run& run) const {
    return {run.saved(kSlots), experts_, slots_, run.shards().count()};
  }

  ExpertSlots own_slots_of(const Run& run) const {
    return {run.saved(own_saved_), own_, most_, ranks_ * run.shards().count()};
  }
  Tensor received(const Run& run) const { return {run.saved(own_saved_ + 1), most_, d_, d_, x_type_}; }

  void check_inputs(const Inference& io);
  void count_flops(const Inference& io);
  void book_experts(Inference& io);
  void book_scratch(Inference& io);
  int64_t place_scratch(int64_t rows);
  // The rows that a plan expects if other ranks send some: all with room, else twice an even load.
  int64_t likely_rows() const { return room_ > 0 ? most_ : std::min(most_, ranks_ > 1 ? 2 * slots_ : slots_); }
  GemmBlock gemm_of(ConstCells a, int64_t lda, const int32_t* gathered, const ExpertSlots::Block& b,
                    const void* panels, int64_t k, int64_t n) const;
  void sort(const Run& run, const ExpertSlots& slots) const;
  void pack_adapters(const Run& run, const ExpertSlots& slots, Pack how) const;
  void forward_of(const Run& run, const ExpertSlots& slots, const SlotTensor& x, Group group) const;
  void backward_of(const Run& run, const ExpertSlots& slots, const SlotTensor& dy, Group group) const;
  void forward_over_ranks(const Run& run, const ExpertSlots& slots);
  void backward_over_ranks(const Run& run, const ExpertSlots& slots);
  const dist::ExpertGroup& group_of_ranks(const Run& run) const;
  static void gather_rows(const Tensor& from, const ExpertSlots& slots, std::byte* to);
  void finish_forward(const Run& run, const ExpertSlots& slots, const float* rows) const;
  void finish_backward(const Run& run, const ExpertSlots& slots, const float* rows, const float* dgate) const;
  void block_gradients(const ExpertSlots::Block& b, const ExpertSlots& slots, Cells gate, Cells up, float* d,
                       Cells inner, float* dgate) const;
  Tensor rows_of(Cells c) const { return {c.data, most_, f_, f_, c.type}; }
  Tensor low_rows(float* rows, const ExpertAdapter& low) const { return {rows, most_, low.rank(), low.rank()}; }
  void combine(const ExpertSlots& slots, const float* rows, const Tensor& dropped, const Tensor& base,
               const Tensor& out) const;
  void gate_gradient(const Run& run, const ExpertSlots& slots, const float* dgate) const;
  void weight_gradients_of(const Run& run, const ExpertSlots& slots, const SlotTensor& x, const SlotTensor& dy);
  SlotTensor left_of(const Run& run, int i, const SlotTensor& x) const;
  SlotTensor right_of(const Run& run, int i, int64_t part, const SlotTensor& dy) const;
  size_t list_gradients(const Run& run, const ExpertSlots& slots, const SlotTensor& left, const SlotTensor& right,
                        int64_t e, int i, int64_t part, size_t n);

  Activation activation_;
  DType compute_ = DType::f32;
  bool passthrough_ = true, has_residual_ = false, saves_ = false, packs_ = true;
  int64_t d_ = 0, f_ = 0, experts_ = 0, group_ = 1, slots_ = 0;  // group_: experts in a Group
  int ranks_ = 1;                                                // ranks that share the experts
  int64_t own_ = 0, most_ = 0;                                   // experts here; their most rows
  double room_ = 0;                                              // see dist::ExpertGroup::room
  int own_saved_ = 0;  // index of the saved bytes for the rows of all ranks
  DType x_type_ = DType::f32;
  ExpertAdapter low_gate_up_{kGateUpA, kGateUpB, 2}, low_down_{kDownA, kDownB, 1};
  SlotExchange exchange_;
  int64_t packed_at_once_ = 0;                                                         // bytes
  int64_t inner_at_ = 0, rows_at_ = 0, dgate_at_ = 0, gemms_at_ = 0, gemm_bytes_ = 0;  // bytes
  int64_t home_at_ = 0, dy_at_ = 0, home_dgate_at_ = 0;
  std::vector<GradBlock> blocks_;
  std::vector<const float*> adds_;
  const GroupedGemmKernels* kernels_ = nullptr;
};

}  // namespace mudd
