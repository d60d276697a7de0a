#include "mudd/ops/moe_route/moe_route.h"

#include <algorithm>

#include "mudd/kernels/gemm/gemm.h"
#include "mudd/ops/moe_route/node.h"

namespace mudd {

std::span<const KernelRow<MoeRouteKernels>> moe_route_rows() {
  static const KernelRow<MoeRouteKernels> rows[] = {
#define MUDD_KERNEL_LIST "mudd/ops/moe_route/kernels.inc"
#include "mudd/base/kernel_rows.inc"
  };
  return rows;
}

namespace {

// Which of two words an attribute is: false for the first, which is the default, true for the other.
bool second(const Attributes& a, const char* name, const char* first, const char* other) {
  const std::string word = a.word(name, first);
  check(word == first || word == other, "moe_route", name, ": expected ", first, " or ", other, ", got '", word,
        "'");
  return word == other;
}

}  // namespace

MoeRoute::MoeRoute(const Attributes& a)
    : k_(a.integer("top_k", 2)),
      layer_(a.integer("layer", 0)),
      jitter_(a.number("jitter", 0)),
      capacity_{a.number("capacity_factor", 0), second(a, "capacity_scope", "sequence", "shard"),
                second(a, "drop_policy", "position", "probs")} {
  a.only("top_k,layer,jitter,capacity_factor,capacity_scope,drop_policy");
  check(jitter_ >= 0 && jitter_ < 1, "moe_route", "jitter: expected a number in [0, 1), got ", jitter_);
  check(capacity_.factor >= 0, "moe_route", "capacity_factor: expected at least 0, got ", capacity_.factor);
}

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
  // A router works in fp32 in every graph; the store's copies are of the graph's compute type.
  packs_ = !io.input_is_parameter(kW) || io.compute() != DType::f32;
  if (!packs_) io.pack(kW, Pack::plain);
  if (!packs_ && io.wants_gradient(kX)) io.pack(kW, Pack::transposed);
  const int64_t packed = packs_ ? std::max(packed_bytes(d_, experts_), packed_bytes(experts_, d_)) : 0;
  const int64_t noisy = jitter_ > 0 ? rows * d_ * kFloat : 0;
  // Forward: [packed w][x'][work of dropping]. Backward: [packed w][dz][x', then dx'][scratch of dw].
  x_at_ = packed + rows * experts_ * kFloat;
  work_at_ = x_at_ + noisy;
  product_bytes_ = io.wants_gradient(kW) ? grad_scratch_bytes(d_, experts_, io.shards().count()) : 0;
  const int64_t scopes = std::max<int64_t>(samples_, io.shards().count());
  io.scratch_forward(work_at_ + (capacity_.limited() ? (rows * k_ + scopes * experts_) * 4 : 0));
  io.scratch_backward(work_at_ + product_bytes_);
  kernels_ = &choose(moe_route_rows());
}

std::unique_ptr<Node> make_moe_route(const Attributes& a) { return std::make_unique<MoeRoute>(a); }

}  // namespace mudd
