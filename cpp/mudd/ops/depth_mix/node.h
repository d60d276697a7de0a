// The node of depth_mix: its memory plan (depth_mix.cc), and its two passes (passes.cc). Private to this
// folder.
#pragma once

#include "mudd/graph/node.h"
#include "mudd/ops/depth_mix/depth_mix.h"
#include "mudd/ops/depth_mix/generator.h"

namespace mudd {

// Pointers and strides of all states of one call, in arrays for kernels.
struct StateTable {
  const float* x[kMaxMixSources];
  int64_t strides[kMaxMixSources];
  float* dx[kMaxMixSources] = {};
  int64_t dx_strides[kMaxMixSources] = {};
  uint8_t accumulate[kMaxMixSources] = {};
};

class DepthMix : public Node {
 public:
  explicit DepthMix(const Attributes& a);

  const char* op() const override { return "depth_mix"; }
  bool native_bf16() const override { return true; }
  bool weight_like(int i) const override { return i < kMixNewest; }
  bool reads_stored(int i) const override { return i == kMixW1 || i == kMixW2; }
  bool keeps_f32(int c) const override { return c == streams_ - 1; }  // the residual stream
  bool cheap_to_recompute() const override { return true; }           // the streams are most of the saved memory
  void infer(Inference& io) override;
  void forward(const Run& run) override;
  void backward(const Run& run) override;

 private:
  // The scratch of a pass; from a null pointer only the byte counts.
  struct Scratch {
    float *dweights = nullptr, *bias_partials = nullptr, *gain_partials[kMaxStreams] = {};
    MixGenerator::Scratch generator;
    std::byte* tiles = nullptr;  // one for each worker
    int64_t bytes = 0;
  };
  Scratch forward_scratch(std::byte* base) const;
  Scratch backward_scratch(std::byte* base, const Shards& shards) const;

  static constexpr int64_t kFloat = sizeof(float);
  // Rows of a forward task: whole register tiles of the GEMMs (6, 12), in L2.
  static constexpr int64_t kTile = 48;
  void infer_states(const Inference& io);
  void infer_gains(const Inference& io);
  int newest() const { return newest_given_ ? kMixNewest : kMixStates + sources_ - 1; }
  DepthMixRows rows_of(const Run& run, StateTable& table) const;
  DepthMixGradients gradients_of(const Run& run, StateTable& table, float* dweights) const;
  Tensor stream(const Run& run, int c) const { return c < streams_ ? run.out(c) : Tensor{}; }
  Tensor dstream(const Run& run, int c) const { return c < streams_ ? run.dout(c) : Tensor{}; }
  Tensor direct(const Run& run) const { return direct_ ? run.in(newest()) : Tensor{}; }
  Tensor dstate(const Run& run, int j) const {
    return run.wants(kMixStates + j) ? run.din(kMixStates + j) : Tensor{};
  }
  bool all_fp32(const Run& run, bool backward) const;
  void widen_states(const Run& run, int64_t begin, int64_t end, float* copies, StateTable& table) const;
  void forward_pieces(const Run& run, int64_t begin, int64_t end) const;
  int newest_again(const Run& run) const;
  bool adds_to_newest(const Run& run) const;
  void backward_pieces(const Run& run, int64_t begin, int64_t end, const DepthMixGradients& sums,
                       const Tensor& dnewest, float* scratch) const;

  bool direct_, post_norm_;
  float norm_eps_;
  MixGenerator generator_;
  int64_t rows_ = 0, width_ = 0;
  int streams_ = 0, sources_ = 0, normed_ = 0;
  bool newest_given_ = false, wants_gain_[kMaxStreams] = {}, wants_bias_ = false;
  int64_t slots_ = 1;                             // workers at planning time
  int64_t forward_tile_ = 0, backward_tile_ = 0;  // bytes
  const DepthMixKernels* kernels_ = nullptr;
  const LinearKernels* sums_ = nullptr;
};

}  // namespace mudd
