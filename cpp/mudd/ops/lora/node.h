// The node of lora: its memory plan (lora.cc) and its two passes (passes.cc). Private to this folder.
#pragma once

#include <string>

#include "mudd/base/dropout.h"
#include "mudd/graph/node.h"
#include "mudd/graph/right_operand.h"
#include "mudd/kernels/gemm/low_rank.h"
#include "mudd/ops/dropout/dropout.h"

namespace mudd {

class Lora final : public Node {
 public:
  explicit Lora(const Attributes& a)
      : scale_(static_cast<float>(a.number("scale"))), rate_(a.number("rate")), purpose_(a.word("purpose")) {}

  const char* op() const override { return "lora"; }
  bool native_bf16() const override { return true; }
  bool weight_like(int i) const override { return i == kW || i == kA || i == kB || i == kBias; }
  bool reads_stored(int i) const override { return i == kW; }
  bool backward_reads_input(int i) const override {
    if (i == kX) return wants_a_ || wants_w_;
    if (i == kB) return wants_a_ || wants_x_;
    return (i == kW || i == kA) && wants_x_;
  }
  bool keeps_f32(int) const override { return has_residual_; }
  int passes_gradient() const override { return has_residual_ ? kResidual : -1; }
  int in_place_input() const override { return has_residual_ ? kResidual : -1; }

  void infer(Inference& io) override;
  void forward(const Run& run) override;
  void backward(const Run& run) override;

 private:
  enum Input { kX, kW, kA, kB, kBias, kResidual };

  static constexpr int64_t kFloat = sizeof(float);

  // Bytes into the scratch of a pass.
  struct Places {
    int64_t a = 0, b = 0, w = 0, copy = 0, u = 0, bias = 0, sums = 0;
  };

  static TensorSpec output_spec(const Inference& io);
  void count_flops();
  int64_t book_forward();
  int64_t book_backward(const Shards& shards);

  static RightOperand right(const Run& run, int input, Pack how, std::byte* scratch);
  void drop(const Run& run, const Tensor& x, const Tensor& base, const Tensor& y) const;
  Tensor dropped(const Run& run, const Tensor& x, std::byte* copy) const;
  void sum_weights(const Run& run, const Tensor& dy, const Tensor& x, LowRankGemm all) const;
  void dropped_gradient(const Run& run, const Tensor& dy, const Tensor& du) const;

  float scale_;
  double rate_;
  std::string purpose_;
  bool has_residual_ = false, wants_x_ = true, wants_w_ = true, wants_a_ = true, wants_b_ = true,
       wants_bias_ = true, drops_ = false, packs_ = true;
  DType compute_ = DType::f32;
  int64_t rows_ = 0, k_ = 0, n_ = 0, rank_ = 0, time_ = 1;
  Places forward_, backward_;
  int64_t sums_bytes_ = 0;  // planned for the gradients of weights
  const DropoutKernels* dropout_ = nullptr;
};

}  // namespace mudd
