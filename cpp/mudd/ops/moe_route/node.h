// The node of moe_route: its memory plan (moe_route.cc), its two passes (passes.cc), and the choice of experts
// row by row with its gradient (choice.cc). Private to this folder.
#pragma once

#include "mudd/graph/node.h"
#include "mudd/graph/right_operand.h"
#include "mudd/ops/moe_route/capacity.h"
#include "mudd/ops/moe_route/moe_route.h"

namespace mudd {

class MoeRoute : public Node {
 public:
  explicit MoeRoute(const Attributes& a);

  const char* op() const override { return "moe_route"; }
  bool native_bf16() const override { return true; }  // x and dx; the router computes in fp32
  bool weight_like(int i) const override { return i == kW; }
  bool keeps_f32(int) const override { return true; }  // gates and metrics
  bool backward_reads_output(int i) const override { return i == kExperts; }

  void infer(Inference& io) override;
  void forward(const Run& run) override;
  void backward(const Run& run) override;

 private:
  enum Input { kX, kW, kSegments, kKeyMask };
  enum Output { kGates, kExperts, kMetrics };
  enum Saved { kProbabilities, kChosenGates, kChosen, kStats };
  static constexpr int64_t kFloat = sizeof(float);

  // Return w for a GEMM: kept by the parameter store, or packed at the start of the scratch.
  RightOperand right(const Run& run, Pack how) const;
  // Set to[d] = from[d] * noise of this row, or add it.
  void with_noise(const Run& run, int64_t row, const float* from, float* to, bool add) const;
  // Return x, or x' in the scratch.
  Tensor router_input(const Run& run) const;
  void weight_gradient_of(const Run& run, const float* dz) const;
  void input_gradient(const Run& run, const float* dz) const;

  bool real(const Run& run, int64_t row) const;
  void choose_experts(const Run& run, int64_t row) const;
  // Set slots over the capacity of their expert to -1.
  void drop(const Run& run) const;
  // Write the final gates and the metrics of one sample.
  void finish_sample(const Run& run, int64_t sample) const;
  void logit_gradient(const Run& run, int64_t row, float* dz) const;

  int64_t k_, layer_;
  double jitter_;
  Capacity capacity_;
  int64_t samples_ = 0, length_ = 0, d_ = 0, experts_ = 0;
  bool packs_ = true;
  int64_t x_at_ = 0, work_at_ = 0, gemm_bytes_ = 0;  // bytes: places in the scratch; of the scratch of dw
  const MoeRouteKernels* kernels_ = nullptr;
};

}  // namespace mudd
