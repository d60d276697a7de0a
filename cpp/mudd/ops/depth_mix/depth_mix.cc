#include "mudd/ops/depth_mix/depth_mix.h"

#include <algorithm>

#include "mudd/base/parallel.h"
#include "mudd/graph/arena.h"
#include "mudd/graph/node.h"
#include "mudd/graph/row_sums.h"
#include "mudd/graph/row_tasks.h"
#include "mudd/ops/depth_mix/generator.h"

namespace mudd {

std::span<const KernelRow<DepthMixKernels>> depth_mix_rows() {
  static const KernelRow<DepthMixKernels> rows[] = {
#define MUDD_KERNEL(name, level) {#name, #level, &level::name},
#include "mudd/ops/depth_mix/kernels.inc"
#undef MUDD_KERNEL
  };
  return rows;
}

namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kTile = 48;  // rows of a forward task: whole register tiles of the products (6, 12), in L2

// Pointers and strides of all states of one call, in arrays that kernels take.
struct StateTable {
  const float* x[kMaxMixSources];
  int64_t strides[kMaxMixSources];
  float* dx[kMaxMixSources] = {};
  int64_t dx_strides[kMaxMixSources] = {};
  uint8_t accumulate[kMaxMixSources] = {};
};

class DepthMix : public Node {
 public:
  explicit DepthMix(const Attributes& a)
      : direct_(a.flag("direct", false)),
        post_norm_(a.flag("post_norm", false)),
        norm_eps_(static_cast<float>(a.number("norm_eps", 1e-6))),
        generator_(parse_activation(a.word("activation", "gelu_tanh"), "depth_mix"),
                   static_cast<float>(a.number("eps", 1e-6))) {
    a.only("direct,post_norm,activation,eps,norm_eps");
    for (const char* name : {"eps", "norm_eps"})
      check(a.number(name, 1e-6) >= 0, "depth_mix", name, ": expected a number >= 0, got ", a.number(name, 1e-6));
    check(direct_ || !post_norm_, "depth_mix",
          "post_norm: needs direct, the sum that the last stream enters after it");
  }

  const char* op() const override { return "depth_mix"; }
  bool weight_like(int i) const override { return i < kMixNewest; }
  bool keeps_f32(int c) const override { return c == streams_ - 1; }  // the residual stream
  bool cheap_to_recompute() const override { return true; }  // the streams are the largest part of what is kept
  void infer(Inference& io) override;
  void forward(const Run& run) override;
  void backward(const Run& run) override;

 private:
  void infer_states(const Inference& io);
  void infer_gains(const Inference& io);
  int newest() const { return newest_given_ ? kMixNewest : kMixStates + sources_ - 1; }
  DepthMixRows rows_of(const Run& run, StateTable& table) const;
  DepthMixGradients gradients_of(const Run& run, StateTable& table, float* dweights) const;

  bool direct_, post_norm_;
  float norm_eps_;
  MixGenerator generator_;
  int64_t rows_ = 0, width_ = 0;
  int streams_ = 0, sources_ = 0, normed_ = 0;
  bool newest_given_ = false, wants_gain_[kMaxStreams] = {}, wants_bias_ = false;
  int64_t slots_ = 1;  // workers that scratch was booked for
  int64_t forward_tile_ = 0, backward_tile_ = 0, dweights_bytes_ = 0, generator_bytes_ = 0, partial_bytes_ = 0;
  const DepthMixKernels* kernels_ = nullptr;
  const LinearKernels* sums_ = nullptr;
};

void DepthMix::infer_states(const Inference& io) {
  check(io.n_inputs() > kMixStates, "depth_mix", "states: expected at least one");
  sources_ = io.n_inputs() - kMixStates;
  check(sources_ <= kMaxMixSources, "depth_mix", "states: expected at most ", kMaxMixSources, ", got ", sources_);
  const TensorSpec& first = io.input(kMixStates);
  check(first.dtype == DType::f32, "depth_mix", "states: expected float32, got ", name_of(first.dtype));
  check(!first.shape.empty() && first.cols() > 0, "depth_mix", "states: expected at least one column, got ",
        first.text());
  for (int j = 0; j < sources_; ++j) {
    const TensorSpec& x = io.input(kMixStates + j);
    check(io.has_input(kMixStates + j) && x.dtype == DType::f32 && x.shape == first.shape, "depth_mix", "state ",
          j, ": expected ", first.text(), " as the first, got ", x.text());
  }
  newest_given_ = io.has_input(kMixNewest);
  if (newest_given_)
    check(io.input(kMixNewest).dtype == DType::f32 && io.input(kMixNewest).shape == first.shape, "depth_mix",
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
  forward_tile_ = generator_.forward_tile_bytes(kTile);
  io.scratch_forward(generator_.forward_bytes() + slots_ * forward_tile_);
  // Backward: [dA of all rows][generator][sums over rows: bias, gains][a tile per worker].
  const int64_t count = streams_ * sources_;
  dweights_bytes_ = aligned(rows_ * count * kFloat);
  generator_bytes_ = generator_.backward_bytes(io);
  partial_bytes_ = wants_bias_ ? aligned(RowSums(io.shards(), rows_, count).bytes()) : 0;
  for (int c = 0; c < normed_; ++c)
    if (wants_gain_[c]) partial_bytes_ += aligned(RowSums(io.shards(), rows_, width_).bytes());
  backward_tile_ = std::max(aligned(streams_ * width_ * kFloat), generator_.backward_tile_bytes(kRowBlock));
  io.scratch_backward(dweights_bytes_ + generator_bytes_ + partial_bytes_ + slots_ * backward_tile_);
  kernels_ = &choose(depth_mix_rows());
  sums_ = &choose(linear_rows());
}

DepthMixRows DepthMix::rows_of(const Run& run, StateTable& table) const {
  for (int j = 0; j < sources_; ++j) {
    table.x[j] = run.in(kMixStates + j).f32();
    table.strides[j] = run.in(kMixStates + j).stride;
  }
  DepthMixRows m{.width = width_, .streams = streams_, .sources = sources_, .normed = normed_};
  m.post_norm = post_norm_;
  m.states = table.x;
  m.state_strides = table.strides;
  if (direct_) m.direct = run.in(newest()).f32(), m.direct_stride = run.in(newest()).stride;
  m.weights = generator_.present() ? generator_.weights(run) : run.in(kMixBias).f32();
  m.weight_stride = generator_.present() ? streams_ * sources_ : 0;
  for (int c = 0; c < normed_; ++c) m.gains[c] = run.in(kMixGain + c).f32();
  m.eps = norm_eps_;
  m.inverse = run.saved_as<float>(0);
  return m;
}

void DepthMix::forward(const Run& run) {
  StateTable table;
  const DepthMixRows mix = rows_of(run, table);
  const Tensor& x = run.in(newest());
  DepthMixOutputs out;
  for (int c = 0; c < streams_; ++c) out.streams[c] = run.out(c).f32(), out.strides[c] = run.out(c).stride;
  generator_.start_forward(run, run.scratch());
  std::byte* tiles = run.scratch() + generator_.forward_bytes();
  tasks_with_scratch((rows_ + kTile - 1) / kTile, slots_, tiles, forward_tile_, [&](int64_t task, float* tile) {
    const int64_t begin = task * kTile, end = std::min(begin + kTile, rows_);
    if (generator_.present()) generator_.forward(run, x, begin, end, tile);
    kernels_->fwd(begin, end, mix, out);
  });
}

DepthMixGradients DepthMix::gradients_of(const Run& run, StateTable& table, float* dweights) const {
  DepthMixGradients g;
  for (int c = 0; c < streams_; ++c)
    if (run.dout(c)) g.streams[c] = run.dout(c).f32(), g.strides[c] = run.dout(c).stride;
  for (int j = 0; j < sources_; ++j) {
    if (!run.wants(kMixStates + j)) continue;
    table.dx[j] = run.din(kMixStates + j).f32();
    table.dx_strides[j] = run.din(kMixStates + j).stride;
    table.accumulate[j] = run.accumulate(kMixStates + j);
  }
  g.states = table.dx;
  g.state_strides = table.dx_strides;
  g.accumulate = table.accumulate;
  if (direct_ && run.wants(newest())) {
    g.direct = run.din(newest()).f32(), g.direct_stride = run.din(newest()).stride;
    g.direct_accumulate = !newest_given_ || run.accumulate(kMixNewest);
  }
  g.weights = dweights;
  return g;
}

void DepthMix::backward(const Run& run) {
  StateTable table;
  const DepthMixRows mix = rows_of(run, table);
  auto* dweights = run.scratch_as<float>();
  const DepthMixGradients whole = gradients_of(run, table, dweights);
  std::byte* at = run.scratch() + dweights_bytes_;
  generator_.start_backward(run, at);
  at += generator_bytes_;
  const int64_t count = streams_ * sources_;
  const RowSums bias_sums(run.shards(), rows_, count), gain_sums(run.shards(), rows_, width_);
  float *bias_partials = nullptr, *gain_partials[kMaxStreams] = {};
  std::byte* partials = at;
  if (wants_bias_) bias_partials = reinterpret_cast<float*>(partials), partials += aligned(bias_sums.bytes());
  for (int c = 0; c < normed_; ++c)
    if (wants_gain_[c])
      gain_partials[c] = reinterpret_cast<float*>(partials), partials += aligned(gain_sums.bytes());
  const Tensor& x = run.in(newest());
  const Tensor dx = run.wants(newest()) ? run.din(newest()) : Tensor{};
  // The mixing has written there before, unless newest comes apart and nothing is added directly.
  const bool adds = !newest_given_ || direct_ || (dx && run.accumulate(newest()));
  tasks_with_scratch(bias_sums.blocks(), slots_, at + partial_bytes_, backward_tile_,
                     [&](int64_t task, float* tile) {
                       int64_t begin = 0, end = 0;
                       bias_sums.range(task, &begin, &end);
                       DepthMixGradients grads = whole;
                       for (int c = 0; c < normed_; ++c)
                         if (gain_partials[c]) grads.gains[c] = gain_sums.partial(gain_partials[c], task);
                       kernels_->bwd(begin, end, mix, grads, tile);
                       if (bias_partials)
                         sums_->bwd(begin, end, count, Activation::none, nullptr, dweights, count, nullptr,
                                    bias_sums.partial(bias_partials, task));
                       if (generator_.present())
                         generator_.backward(run, x, dweights, begin, end, task, dx, adds, tile);
                       else if (newest_given_ && dx && !adds)
                         for (int64_t r = begin; r < end; ++r) std::fill_n(dx.f32() + r * dx.stride, width_, 0.0f);
                     });
  if (wants_bias_) bias_sums.finish(bias_partials, run.sink(kMixBias));
  for (int c = 0; c < normed_; ++c)
    if (wants_gain_[c]) gain_sums.finish(gain_partials[c], run.sink(kMixGain + c));
  if (generator_.present()) generator_.finish_backward(run, x, dweights);
}

}  // namespace

std::unique_ptr<Node> make_depth_mix(const Attributes& a) { return std::make_unique<DepthMix>(a); }

}  // namespace mudd
