#include "mudd/ops/moe_route/moe_route.h"

#include <algorithm>

#include "mudd/kernels/gemm/gemm.h"
#include "mudd/ops/moe_route/node.h"

namespace mudd {

std::span<const KernelRow<MoeRouteKernels>> moe_route_rows() {
  static const KernelRow<MoeRouteKernels> rows[] = {MUDD_KERNEL_ROWS(moe_route_f32)};
  return rows;
}

namespace {}  // namespace

MoeRoute::MoeRoute(const Attributes& a)
    : k_(a.integer("top_k")),
      layer_(a.integer("layer")),
      jitter_(a.number("jitter")),
      capacity_{a.number("capacity_factor"), a.word("capacity_scope") == "shard",
                a.word("drop_policy") == "probs"} {}

void MoeRoute::infer(Inference& io) {
  const TensorSpec &x = io.input(kX), &w = io.input(kW);
  check(is_real(x) && x.shape.size() == 3, "moe_route", "x: expected float32[B, T, D], got ", x.text());
  check(w.dtype == DType::f32 && w.shape.size() == 2 && w.shape[0] == x.cols() && w.cols() > 0, "moe_route",
        "w: expected float32[", x.cols(), ", E], got ", w.text());
  samples_ = x.shape[0];
  length_ = x.shape[1];
  d_ = x.cols();
  experts_ = w.cols();
  check(k_ >= 1 && k_ <= experts_, "moe_route", "top_k: expected 1 to ", experts_, " experts, got ", k_);
  for (int i : {kSegments, kKeyMask})
    check(!io.has_input(i) ||
              (io.input(i).dtype == DType::i32 && io.input(i).shape == std::vector<int64_t>{samples_, length_}),
          "moe_route", i == kSegments ? "segments" : "key_mask", ": expected int32[", samples_, ", ", length_,
          "], got ", io.input(i).text());
  io.output({{samples_, length_, k_}, DType::f32});
  io.output({{samples_, length_, k_}, DType::i32});
  io.output({{samples_, RouteMetrics{experts_}.width()}, DType::f32});
  const int64_t rows = samples_ * length_;
  io.saved(rows * experts_ * kFloat);
  io.saved(rows * k_ * kFloat);
  io.saved(rows * k_ * 4);
  io.saved(rows * static_cast<int64_t>(sizeof(RouteRow)));
  if (!io.wants_gradient(kX) && !io.wants_gradient(kW)) jitter_ = 0;  // training only
  // A router computes in fp32 in every graph; the store's copies have the graph's compute type.
  packs_ = !io.may_stay_packed(kW) || io.compute() != DType::f32;
  if (!packs_) io.pack(kW, Pack::plain);
  if (!packs_ && io.wants_gradient(kX)) io.pack(kW, Pack::transposed);
  const int64_t packed = packs_ ? std::max(packed_bytes(d_, experts_), packed_bytes(experts_, d_)) : 0;
  const int64_t noisy = jitter_ > 0 ? rows * d_ * kFloat : 0;
  // Forward: [packed w][x'][work of dropping]. Backward: [packed w][dz][x', then dx'][scratch of dw].
  x_at_ = packed + rows * experts_ * kFloat;
  work_at_ = x_at_ + noisy;
  gemm_bytes_ = io.wants_gradient(kW) ? grad_scratch_bytes(d_, experts_, io.shards().count()) : 0;
  const int64_t scopes = std::max<int64_t>(samples_, io.shards().count());
  io.scratch_forward(work_at_ + (capacity_.limited() ? (rows * k_ + scopes * experts_) * 4 : 0));
  io.scratch_backward(work_at_ + gemm_bytes_);
  kernels_ = &choose(moe_route_rows());
}

const OpSpec& moe_route_op() {
  static const OpSpec spec{
      .name = "moe_route",
      .help = R"(The top-k router of a mixture of E experts: (gates, experts int32, both [B, T, k], metrics).

Jiang et al. 2024.
x [B, T, D], w [D, E], p = softmax(x w). The k largest p are chosen (on ties the lower expert) and divided by their
sum: these are the gates. capacity_factor > 0: an expert accepts at most floor(T k factor / E) slots of a sequence,
rounded up per shard instead. For other slots the expert becomes -1 and the gate 0. jitter e: if gradients are
computed, x is multiplied by uniform random values in [1 - e, 1 + e], drawn by seed, step, sample and layer.
metrics float32 [B, 4 E + 3] are sums over each sample, with E values each for: slots routed to an expert before
dropping, probabilities, slots that an expert processes, dropped slots. Then come the squared log-sum-exp, the tokens
and the entropy in nats. Tokens with segment 0 or mask 0 (int32 [B, T]) are padding. They are routed and dropped like
others, but the metrics include them only in processed and dropped slots.)",
      .backward_help =
          R"(Pass the gradient of the gates, or a tuple (of the gates, None, of the metrics). Among the metrics,
only the sums of probabilities and of the squared log-sum-exp have gradients.)",
      .inputs = {{"x"},
                 {"w"},
                 {"segments", OpInput::kOptional | OpInput::kIndex},
                 {"key_mask", OpInput::kOptional | OpInput::kIndex}},
      .outputs = {{"gates"}, {"experts", OpOutput::kNoGradient, DType::i32}, {"metrics"}},
      .options = {option::integer("top_k", 2, {}, "experts of a token"),
                  option::number("capacity_factor", 0, at_least(0),
                                 "largest number of slots of an expert, relative to T k / E; 0: no limit"),
                  option::word("capacity_scope", "sequence", {"sequence", "shard"},
                               "tokens that a capacity applies to: of a sequence or of a shard"),
                  option::word("drop_policy", "position", {"position", "probs"},
                               "slots that are kept: the first ones, or the ones with the largest gates"),
                  option::number("jitter", 0, from_to_below(0, 1), "width of the noise on the router's input"),
                  option::integer("layer", 0, {}, "counter of the random draws")},
      .make = make<MoeRoute>,
      .kernels =
          [] {
            return std::vector{chosen(moe_route_rows()), chosen(gemm_rows(DType::f32)),
                               chosen(gemm_rows(DType::bf16))};
          },
  };
  return spec;
}

}  // namespace mudd
