#include "mudd/ops/depth_mix/depth_mix.h"

#include <algorithm>

#include "mudd/base/arena.h"
#include "mudd/base/parallel.h"
#include "mudd/graph/row_sums.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/ops/depth_mix/node.h"
#include "mudd/ops/linear/linear.h"
#include "mudd/ops/rms_norm/rms_norm.h"

namespace mudd {

std::span<const KernelRow<DepthMixKernels>> depth_mix_rows() {
  static const KernelRow<DepthMixKernels> rows[] = {MUDD_KERNEL_ROWS(depth_mix_f32)};
  return rows;
}

DepthMix::DepthMix(const Attributes& a)
    : direct_(a.flag("direct")),
      post_norm_(a.flag("post_norm")),
      norm_eps_(static_cast<float>(a.number("norm_eps"))),
      generator_(a.choice<Activation>("activation"), static_cast<float>(a.number("eps"))) {
  check(direct_ || !post_norm_, "depth_mix",
        "post_norm: needs direct, the sum that the last stream enters after it");
}

void DepthMix::infer_states(const Inference& io) {
  check(io.n_inputs() > kMixStates, "depth_mix", "states: expected at least one");
  sources_ = io.n_inputs() - kMixStates;
  check(sources_ <= kMaxMixSources, "depth_mix", "states: expected at most ", kMaxMixSources, ", got ", sources_);
  const TensorSpec& first = io.input(kMixStates);
  check(is_real(first), "depth_mix", "states: expected float32, got ", name_of(first.dtype));
  check(!first.shape.empty() && first.cols() > 0, "depth_mix", "states: expected at least one column, got ",
        first.text());
  for (int j = 0; j < sources_; ++j) {
    const TensorSpec& x = io.input(kMixStates + j);
    check(io.has_input(kMixStates + j) && is_real(x) && x.shape == first.shape, "depth_mix", "state ", j,
          ": expected ", first.text(), " as the first, got ", x.text());
  }
  newest_given_ = io.has_input(kMixNewest);
  if (newest_given_)
    check(is_real(io.input(kMixNewest)) && io.input(kMixNewest).shape == first.shape, "depth_mix",
          "newest: expected ", first.text(), " as the states, got ", io.input(kMixNewest).text());
  rows_ = first.rows(), width_ = first.cols();
}

void DepthMix::infer_gains(const Inference& io) {
  normed_ = 0;
  for (int c = 0; c < kMaxStreams; ++c) {
    wants_gain_[c] = io.wants_gradient(kMixGain + c);
    if (!io.has_input(kMixGain + c)) continue;
    check(c == normed_ && c < streams_, "depth_mix", "gain ", c, ": expected gains of the leading streams (of ",
          streams_, ") without a gap");
    const TensorSpec& gain = io.input(kMixGain + c);
    check(gain.dtype == DType::f32 && gain.shape == std::vector<int64_t>{width_}, "depth_mix", "gain ", c,
          ": expected float32[", width_, "], got ", gain.text());
    ++normed_;
  }
  check(!post_norm_ || normed_ == streams_, "depth_mix", "post_norm: expected a gain for every stream, got ",
        normed_, " for ", streams_);
}

void DepthMix::infer(Inference& io) {
  infer_states(io);
  const TensorSpec& bias = io.input(kMixBias);
  check(io.has_input(kMixBias) && bias.dtype == DType::f32 && bias.shape.size() == 2 && bias.shape[0] >= 1 &&
            bias.shape[0] <= kMaxStreams && bias.shape[1] == sources_,
        "depth_mix", "bias: expected float32[C, ", sources_, "] with 1 to ", kMaxStreams, " streams C, got ",
        bias.text());
  streams_ = static_cast<int>(bias.shape[0]);
  infer_gains(io);
  wants_bias_ = io.wants_gradient(kMixBias);
  io.saved(std::max<int64_t>(1, rows_ * normed_) * kFloat);
  generator_.infer(io, rows_, width_, streams_ * sources_);
  for (int c = 0; c < streams_; ++c) io.output(io.input(kMixStates));
  slots_ = std::min<int64_t>(num_threads(), std::max<int64_t>(1, (rows_ + kTile - 1) / kTile));
  forward_tile_ = generator_.tile_bytes(kTile);
  backward_tile_ = std::max(aligned(streams_ * width_ * kFloat), generator_.tile_bytes(kRowBlock));
  io.scratch_forward(forward_scratch(nullptr).bytes);
  io.scratch_backward(backward_scratch(nullptr, io.shards()).bytes);
  kernels_ = &choose(depth_mix_rows());
  sums_ = &choose(linear_rows());
}

DepthMix::Scratch DepthMix::forward_scratch(std::byte* base) const {
  Pieces pieces(base);
  Scratch s;
  s.generator = generator_.forward_scratch(pieces);
  s.tiles = pieces.bytes(slots_ * forward_tile_);
  s.bytes = pieces.used();
  return s;
}

DepthMix::Scratch DepthMix::backward_scratch(std::byte* base, const Shards& shards) const {
  const int64_t count = streams_ * sources_;
  const auto partials = [&](int64_t width) { return RowSums(shards, rows_, width).bytes() / kFloat; };
  Pieces pieces(base);
  Scratch s;
  s.dweights = pieces.take<float>(rows_ * count);
  s.generator = generator_.backward_scratch(shards, pieces);
  if (wants_bias_) s.bias_partials = pieces.take<float>(partials(count));
  for (int c = 0; c < normed_; ++c)
    if (wants_gain_[c]) s.gain_partials[c] = pieces.take<float>(partials(width_));
  s.tiles = pieces.bytes(slots_ * backward_tile_);
  s.bytes = pieces.used();
  return s;
}

const OpSpec& depth_mix_op() {
  static const OpSpec spec{
      .name = "depth_mix",
      .help = R"(C streams as weighted sums of l earlier states, with weights for each token.

Xiao et al. 2025, MUDDFormer.
states: l arrays [..., D]; X is newest, or the last state if newest is absent. With w1 [D, K] and w2 [K, C*l] the
weights are A = act(rms(X; generator_gain) w1) w2 + bias, with column c*l + j for stream c and state j. Without them
A = bias [C, l]. Stream c is sum_j A[c, j] states[j] (+ X if direct). If gain_c [D] is passed, the stream is then
rms-normalized; only leading streams can have a gain. C is 1 to 4; the result is one array for C = 1, else a tuple.)",
      .backward_help = R"(dy is the gradient of the stream, or a tuple, None for zero.)",
      .inputs = {{"bias"},
                 {"w1", OpInput::kOptional},
                 {"w2", OpInput::kOptional},
                 {"generator_gain", OpInput::kOptional},
                 {"gain_0", OpInput::kOptional},
                 {"gain_1", OpInput::kOptional},
                 {"gain_2", OpInput::kOptional},
                 {"gain_3", OpInput::kOptional},
                 {"newest", OpInput::kOptional}},
      .repeated = {{"states"}},
      .outputs = {{"y", OpOutput::kRepeated}},
      .options = {option::flag("direct", false, "add X to each stream"),
                  option::flag("post_norm", false, "the last stream is X + rms(sum; its gain)"),
                  option::word("activation", "gelu_tanh", activation_names(), "function of the generator"),
                  option::number("eps", 1e-6, at_least(0), "epsilon of the generator's norm"),
                  option::number("norm_eps", 1e-6, at_least(0), "epsilon of the norms of the streams")},
      .make = make<DepthMix>,
      .kernels =
          [] {
            return std::vector{chosen(depth_mix_rows()), chosen(linear_rows()), chosen(rms_norm_rows()),
                               chosen(gemm_rows(DType::f32)), chosen(gemm_rows(DType::bf16))};
          },
  };
  return spec;
}

}  // namespace mudd
