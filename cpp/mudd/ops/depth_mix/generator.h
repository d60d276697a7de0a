// The small network that computes depth_mix's weights from the newest state: u = rms(x) gain, A = act(u w1) w2
// + bias. It runs on tiles of rows inside the node's tasks, so that a tile stays in cache between its steps.
#pragma once

#include "mudd/base/arena.h"
#include "mudd/graph/node.h"
#include "mudd/graph/row_sums.h"
#include "mudd/ops/depth_mix/depth_mix.h"
#include "mudd/ops/linear/linear.h"
#include "mudd/ops/rms_norm/rms_norm.h"

namespace mudd {

// Inputs of the node, in order; the states follow.
enum DepthMixInput {
  kMixBias,
  kMixW1,
  kMixW2,
  kMixGeneratorGain,
  kMixGain,
  kMixNewest = kMixGain + kMaxStreams,
  kMixStates
};

class MixGenerator {
 public:
  MixGenerator(Activation activation, float eps) : activation_(activation), eps_(eps) {}

  // For rows of width D with `count` weights each: check w1, w2 and the gain, and plan saved(first_saved ..) =
  // weights, pre-activation, inverse rms. Does nothing without w1.
  void infer(Inference& io, int64_t rows, int64_t width, int64_t count);
  bool present() const { return hidden_ > 0; }

  // Scratch of the whole call: packed weights that no store keeps, and rows between the steps of backward.
  struct Scratch {
    std::byte *w1 = nullptr, *w2 = nullptr;
    std::byte *hidden = nullptr, *dscaled = nullptr, *u = nullptr;
    float *gain_partials = nullptr, *gemm_scratch = nullptr;
  };
  Scratch forward_scratch(Pieces& pieces) const;
  Scratch backward_scratch(const Shards& shards, Pieces& pieces) const;
  // Bytes of the scratch of a tile of `rows` rows.
  int64_t tile_bytes(int64_t rows) const;

  // Once per call, before tiles.
  void start_forward(const Run& run, const Scratch& scratch);
  void start_backward(const Run& run, const Scratch& scratch);

  // Weights of rows [begin, end) into saved memory; x: the newest state.
  void forward(const Run& run, const Tensor& x, int64_t begin, int64_t end, float* tile) const;
  // dweights [row][count] of the rows are known: on to dx (fp32; empty: not wanted), block `block` of the sums
  // over rows.
  void backward(const Run& run, const Tensor& x, const float* dweights, int64_t begin, int64_t end, int64_t block,
                Tensor dx, bool accumulate, float* tile) const;
  // After all tiles.
  void finish_backward(const Run& run, const Tensor& x, const float* dweights) const;

  const float* weights(const Run& run) const { return run.saved_as<float>(kWeights); }
  static constexpr int kWeights = 1, kPre = 2, kInverse = 3;  // saved values; 0 is the node's own

 private:
  // Rows of width D and of the hidden width; from null only the bytes.
  struct Tile {
    float *wide, *hidden;
    int64_t bytes;
  };
  Tile tile_of(float* base, int64_t rows) const;
  void pack(const Run& run, Pack how, const Scratch& scratch);
  // Rows of the operands of GEMMs that backward keeps.
  Tensor operand(std::byte* data, int64_t cols) const { return {data, rows_, cols, cols, compute_}; }

  Activation activation_;
  float eps_;
  DType compute_ = DType::f32;
  int64_t rows_ = 0, width_ = 0, hidden_ = 0, count_ = 0;
  bool packs_w1_ = false, packs_w2_ = false;  // here, because no parameter store does
  bool has_gain_ = false, wants_gain_ = false, wants_w_ = false, wants_x_ = false;
  int64_t gemm_bytes_ = 0;  // scratch of the weight gradients
  const DepthMixKernels* kernels_ = nullptr;
  const RmsNormKernels* norm_ = nullptr;

  // Of the call at work.
  const void *w1_ = nullptr, *w2_ = nullptr;
  Tensor hidden_rows_, dscaled_rows_, u_rows_;
  float *gain_partials_ = nullptr, *gemm_scratch_ = nullptr;
};

}  // namespace mudd
