#include "mudd/ops/grouped_gemm/grouped_gemm.h"

#include <algorithm>

#include "mudd/base/arena.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/ops/grouped_gemm/node.h"

namespace mudd {

std::span<const KernelRow<GroupedGemmKernels>> grouped_gemm_rows() {
  static const KernelRow<GroupedGemmKernels> rows[] = {MUDD_KERNEL_ROWS(grouped_gemm_f32)};
  return rows;
}

GroupedGemm::GroupedGemm(const Attributes& a) : activation_(a.choice<Activation>("activation")) {
  passthrough_ = a.word("full_drop") == "passthrough";
  packed_at_once_ = a.integer("packed_at_once");
  low_gate_up_.scale = low_down_.scale = static_cast<float>(a.number("scale"));
}

int64_t GroupedGemm::in_of(int i) const {
  if (const ExpertAdapter* low = adapter_of(i)) return i == low->a() ? low->in() : low->rank();
  return i == kDown ? f_ : d_;
}

int64_t GroupedGemm::out_of(int i) const {
  if (const ExpertAdapter* low = adapter_of(i)) return i == low->a() ? low->rank() : low->out();
  return i == kDown ? d_ : f_;
}

void GroupedGemm::check_inputs(const Inference& io) {
  const char* me = "grouped_gemm";
  const TensorSpec &x = io.input(kX), &gates = io.input(kGates), &experts = io.input(kExperts);
  check(is_real(x) && x.shape.size() == 3, me, "x: expected float32[B, T, D], got ", x.text());
  check(is_real(gates) && gates.shape.size() == 3 && gates.shape[0] == x.shape[0] &&
            gates.shape[1] == x.shape[1] && gates.cols() >= 1 && gates.cols() <= kMaxChoices,
        me, "gates: expected float32[B, T, k] for x ", x.text(), ", got ", gates.text());
  check(experts.dtype == DType::i32 && experts.shape == gates.shape, me, "experts: expected int32 of the shape ",
        gates.text(), ", got ", experts.text());
  d_ = x.cols();
  const TensorSpec &g = io.input(kGate), &u = io.input(kUp), &w = io.input(kDown);
  check(g.dtype == DType::f32 && g.shape.size() == 3 && g.shape[0] > 0 && g.shape[1] == d_ && g.cols() > 0, me,
        "gate: expected float32[E, ", d_, ", F], got ", g.text());
  check(u.dtype == DType::f32 && u.shape == g.shape, me, "up: expected ", g.text(), ", got ", u.text());
  experts_ = g.shape[0];
  f_ = g.cols();
  check(w.dtype == DType::f32 && w.shape == std::vector<int64_t>{experts_, f_, d_}, me, "down: expected float32[",
        experts_, ", ", f_, ", ", d_, "], got ", w.text());
  check(!io.has_input(kResidual) || (is_real(io.input(kResidual)) && io.input(kResidual).shape == x.shape), me,
        "residual: expected ", x.text(), ", got ", io.input(kResidual).text());
  check(io.shards().count() <= kMaxShards, me, "shards: expected at most ", kMaxShards, ", got ",
        io.shards().count());
  slots_ = gates.size();
  x_type_ = x.dtype;
}

// Set the experts of this rank and the most rows that they can get: all tokens of the group's ranks may choose
// them, and another rank has at most one sample more in each shard. In training the user may limit the rows.
void GroupedGemm::book_experts(Inference& io) {
  const TensorSpec &x = io.input(kX), &gates = io.input(kGates);
  ranks_ = io.input_is_parameter(kGate) ? io.expert_ranks() : 1;
  check(experts_ % ranks_ == 0, "grouped_gemm", "gate: ", ranks_, " ranks do not divide ", experts_, " experts");
  check(ranks_ * io.shards().count() <= kMaxShards, "grouped_gemm", "shards: expected at most ", kMaxShards,
        " of ", ranks_, " ranks, got ", ranks_ * io.shards().count());
  own_ = experts_ / ranks_;
  most_ = slots_;
  if (ranks_ == 1) return;
  const int64_t samples = io.shards().samples() + io.shards().count();
  most_ = ranks_ * samples * (x.rows() / io.shards().samples()) * std::min(gates.cols(), own_);
  room_ = io.training() ? io.expert_room() : 0;
  if (room_ > 0) most_ = std::clamp(static_cast<int64_t>(room_ * static_cast<double>(slots_)), int64_t{1}, most_);
  exchange_.book(own_, io.shards().count(), ranks_);
}

void GroupedGemm::infer(Inference& io) {
  check_inputs(io);
  low_gate_up_.infer(io, experts_, d_, f_);
  low_down_.infer(io, experts_, f_, d_);
  book_experts(io);
  has_residual_ = io.has_input(kResidual);
  compute_ = io.compute();
  saves_ = io.wants_gradient(kX) || io.wants_gradient(kGates);
  for (int i : kWeights) saves_ = saves_ || io.wants_gradient(i);
  count_flops(io);
  io.saved(ExpertSlots::bytes(experts_, slots_, io.shards().count()));
  if (saves_) {
    io.saved(most_ * f_ * size_of(compute_), likely_rows() * f_ * size_of(compute_));
    io.saved(most_ * f_ * size_of(compute_), likely_rows() * f_ * size_of(compute_));
  }
  own_saved_ = saves_ ? kSavedUp + 1 : kSavedGate;
  if (ranks_ > 1) {
    const int shards = ranks_ * io.shards().count();
    io.saved(ExpertSlots::bytes(own_, most_, shards), ExpertSlots::bytes(own_, likely_rows(), shards));
    io.saved(most_ * d_ * size_of(x_type_), likely_rows() * d_ * size_of(x_type_));
  }
  for (ExpertAdapter* low : {&low_gate_up_, &low_down_}) low->save(io, most_, likely_rows());
  for (int i : kWeights)
    check(!io.has_input(i) || io.input_is_parameter(i) == io.input_is_parameter(kGate), "grouped_gemm",
          "weights: expected all of them to be parameters of a model, or none");
  // Rows of an expert under an even load.
  const int64_t rows = slots_ / own_, expert_bytes = kMatrices * one_packed();
  packs_ = io.packs_when_used(kGate, rows) || (rows >= Inference::kManyRows && own_ * expert_bytes > kMostKept);
  group_ = packs_ ? std::clamp(packed_at_once_ / expert_bytes, int64_t{1}, own_) : own_;
  if (!packs_) {
    for (int i : {kGate, kUp, kDown}) io.pack(i, Pack::plain);
    if (saves_) io.pack(kDown, Pack::transposed);
    if (io.wants_gradient(kX))
      for (int i : {kGate, kUp}) io.pack(i, Pack::transposed);
  }
  book_scratch(io);
  int64_t gradients = 0;
  for (int i : kWeights) gradients += io.wants_gradient(i) ? parts_of(i) * experts_ : 0;
  blocks_.resize(static_cast<size_t>(gradients));
  adds_.resize(blocks_.size() * kMaxGradAdds);
  io.output(io.input(kX));
  kernels_ = &choose(grouped_gemm_rows());
}

void GroupedGemm::count_flops(const Inference& io) {
  const auto rows = static_cast<double>(slots_);
  const double one = 2 * rows * static_cast<double>(f_ * d_);
  int matmuls = int{saves_} + 2 * int{io.wants_gradient(kX)};  // the gradient of the inner rows, then of x
  for (int i : {kGate, kUp, kDown}) matmuls += int{io.wants_gradient(i)};
  const double low = 2 * rows * (low_gate_up_.multiply_adds() + low_down_.multiply_adds());
  flops_ = kMatrices * one + low;
  backward_flops_ = one * matmuls + 2 * low;
}

// Forward: [packed weights of a group][packed adapters][h][results of the slots, fp32][rows at home, if experts
// are sharded across ranks]. Backward: the same with dx of the slots, then [dgate][du of adapters][scratch of the
// weight gradients]. Then, if experts are sharded: [dy of the slots][dgate at home]. rows: of the experts.
int64_t GroupedGemm::place_scratch(int64_t rows) {
  low_gate_up_.packed_at = packs_ ? kMatrices * packed_bytes() : 0;
  low_down_.packed_at = low_gate_up_.packed_at + low_gate_up_.packed_bytes(own_);
  inner_at_ = low_down_.packed_at + low_down_.packed_bytes(own_);
  rows_at_ = inner_at_ + aligned(rows * f_ * size_of(compute_));
  home_at_ = rows_at_ + aligned(rows * d_ * kFloat);
  dgate_at_ = home_at_ + (ranks_ > 1 ? aligned(slots_ * d_ * kFloat) : 0);
  low_gate_up_.du_at = dgate_at_ + aligned(rows * kFloat);
  low_down_.du_at = low_gate_up_.du_at + aligned(low_gate_up_.du_bytes(rows));
  gemms_at_ = low_down_.du_at + aligned(low_down_.du_bytes(rows));
  dy_at_ = gemms_at_ + aligned(gemm_bytes_);
  home_dgate_at_ = dy_at_ + (ranks_ > 1 ? aligned(rows * d_ * kFloat) : 0);
  return home_dgate_at_ + (ranks_ > 1 ? aligned(slots_ * kFloat) : 0);
}

void GroupedGemm::book_scratch(Inference& io) {
  const int shards = ranks_ * io.shards().count();
  gemm_bytes_ = 0;
  int gemms = 0;
  for (int i : kWeights) gemms += io.wants_gradient(i) ? static_cast<int>(parts_of(i) * own_) : 0;
  for (int i : kWeights) {
    if (!io.wants_gradient(i)) continue;
    // For all ranks at once, or for the tokens of each (GradSink::rank_stride).
    for (const int parts : {1, ranks_})
      gemm_bytes_ =
          std::max(gemm_bytes_, grad_scratch_bytes(in_of(i), out_of(i), shards / parts, gemms * parts, compute_));
  }
  const int64_t likely_backward = place_scratch(likely_rows()), likely_forward = dgate_at_;
  const int64_t backward = place_scratch(most_);
  io.scratch_forward(dgate_at_, likely_forward);
  io.scratch_backward(backward, likely_backward);
}

const OpSpec& grouped_gemm_op() {
  static const OpSpec spec{
      .name = "grouped_gemm",
      .help = R"(y = residual + sum over a token's slots of gates (act(x gate_e) * (x up_e)) down_e.

All experts in one call.
x [B, T, D]; gates and experts (int32, -1 = none) [B, T, k] from moe_route; gate and up [E, D, F]; down [E, F, D].
The op sorts tokens by expert. An expert may have no tokens or all of them. Low-rank adapters add scale A[e] B[e] to
the weights of expert e without computing them: gate and up share gate_up_a [E, D, rank], and gate_up_b
[E, 2 rank, F] has the rows of gate, then of up; down_a [E, F, rank], down_b [E, rank, D].)",
      .inputs = {{"x"},
                 {"gates"},
                 {"experts", OpInput::kIndex},
                 {"gate"},
                 {"up"},
                 {"down"},
                 {"residual", OpInput::kOptional},
                 {"gate_up_a", OpInput::kOptional},
                 {"gate_up_b", OpInput::kOptional},
                 {"down_a", OpInput::kOptional},
                 {"down_b", OpInput::kOptional}},
      .outputs = {{"y"}},
      .options = {option::word("activation", "silu", activation_names(), "function of the gate"),
                  option::word("full_drop", "passthrough", {"passthrough", "zero"},
                               "result for a token without an expert: x, or zero"),
                  option::number("scale", 1, {}, "factor of the adapters' output (alpha / rank)"),
                  option::integer("packed_at_once", int64_t{256} << 20, at_least(0),
                                  "bytes of weights that are packed at once")},
      .make = make<GroupedGemm>,
      .kernels =
          [] {
            return std::vector{chosen(grouped_gemm_rows()), chosen(gemm_rows(DType::f32)),
                               chosen(gemm_rows(DType::bf16))};
          },
  };
  return spec;
}

}  // namespace mudd
