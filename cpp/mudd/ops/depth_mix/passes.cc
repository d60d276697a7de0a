// Forward and backward of depth_mix, block of rows by block of rows.
#include <algorithm>

#include "mudd/base/row_tasks.h"
#include "mudd/graph/row_sums.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/kernels/convert/wide_rows.h"
#include "mudd/ops/depth_mix/node.h"

namespace mudd {
namespace {

// Rows that are mixed at a time if some are bf16: their fp32 copies stay in cache.
constexpr int64_t kPiece = 8;

bool narrow(const Tensor& t) { return t && t.dtype == DType::bf16; }

}  // namespace

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
  const bool fp32 = all_fp32(run, false);
  const Scratch scratch = forward_scratch(run.scratch());
  generator_.start_forward(run, scratch.generator);
  tasks_with_scratch((rows_ + kTile - 1) / kTile, slots_, scratch.tiles, forward_tile_,
                     [&](int64_t task, float* tile) {
                       const int64_t begin = task * kTile, end = std::min(begin + kTile, rows_);
                       if (generator_.present()) generator_.forward(run, x, begin, end, tile);
                       if (fp32) kernels_->fwd(begin, end, mix, out);
                       else forward_pieces(run, begin, end);
                     });
}

// Return true if all rows of one pass are fp32, the type of the kernels.
bool DepthMix::all_fp32(const Run& run, bool backward) const {
  for (int j = 0; j < sources_; ++j)
    if (narrow(run.in(kMixStates + j)) || (backward && narrow(dstate(run, j)))) return false;
  for (int c = 0; c < streams_; ++c)
    if (narrow(backward ? run.dout(c) : run.out(c))) return false;
  return !narrow(run.in(newest())) && !(backward && run.wants(newest()) && narrow(run.din(newest())));
}

// Point the table at fp32 copies of rows [begin, end) of the bf16 states.
void DepthMix::widen_states(const Run& run, int64_t begin, int64_t end, float* copies, StateTable& table) const {
  const ConvertKernels& convert = convert_kernels();
  for (int j = 0; j < sources_; ++j) {
    const Tensor& x = run.in(kMixStates + j);
    if (!narrow(x)) continue;
    float* to = copies + j * kPiece * width_;
    for (int64_t r = begin; r < end; ++r)
      convert.widen(width_, (x.cells() + r * x.stride).b16(), to + (r - begin) * width_);
    table.x[j] = to - begin * width_;
    table.strides[j] = width_;
  }
}

void DepthMix::forward_pieces(const Run& run, int64_t begin, int64_t end) const {
  StateTable table;
  DepthMixRows mix = rows_of(run, table);
  const WorkerFloats copies(sources_ * kPiece * width_);
  for (int64_t at = begin; at < end; at += kPiece) {
    const int64_t to = std::min(end, at + kPiece);
    widen_states(run, at, to, copies.data(), table);
    const WideRows added(direct(run), at, to);
    mix.direct = added.base(), mix.direct_stride = added.stride();
    const NarrowRows made[kMaxStreams] = {
        {stream(run, 0), at, to}, {stream(run, 1), at, to}, {stream(run, 2), at, to}, {stream(run, 3), at, to}};
    DepthMixOutputs out;
    for (int c = 0; c < streams_; ++c) out.streams[c] = made[c].base(), out.strides[c] = made[c].stride();
    kernels_->fwd(at, to, mix, out);
  }
}

// Return the state that is the same value as `newest`, or -1. Of the uses of a value the first sets its
// gradient and the others add. `newest` is first among the inputs, but the states' gradients are written first.
int DepthMix::newest_again(const Run& run) const {
  if (!newest_given_ || !run.wants(newest())) return -1;
  for (int j = 0; j < sources_; ++j)
    if (run.wants(kMixStates + j) && run.din(kMixStates + j).data == run.din(newest()).data) return j;
  return -1;
}

// Return true if the gradient of the newest state already has a value before the generator adds to it.
bool DepthMix::adds_to_newest(const Run& run) const {
  return !newest_given_ || newest_again(run) >= 0 || (run.wants(newest()) && run.accumulate(newest()));
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
  if (const int same = newest_again(run); same >= 0) table.accumulate[same] = run.accumulate(kMixNewest);
  g.states = table.dx;
  g.state_strides = table.dx_strides;
  g.accumulate = table.accumulate;
  if (direct_ && run.wants(newest())) {
    g.direct = run.din(newest()).f32(), g.direct_stride = run.din(newest()).stride;
    g.direct_accumulate = adds_to_newest(run);
  }
  g.weights = dweights;
  return g;
}

// Run the kernel's bwd over a block; dnewest: the gradient of the newest state in fp32; sums: the output of
// sums over rows.
void DepthMix::backward_pieces(const Run& run, int64_t begin, int64_t end, const DepthMixGradients& sums,
                               const Tensor& dnewest, float* scratch) const {
  StateTable table;
  DepthMixRows mix = rows_of(run, table);
  DepthMixGradients grads = gradients_of(run, table, sums.weights);
  std::copy(sums.gains, sums.gains + kMaxStreams, grads.gains);
  if (!newest_given_) table.dx[sources_ - 1] = dnewest.f32(), table.dx_strides[sources_ - 1] = dnewest.stride;
  if (grads.direct) grads.direct = dnewest.f32(), grads.direct_stride = dnewest.stride;
  const auto copied = [&](int j) { return narrow(dstate(run, j)) && (newest_given_ || j < sources_ - 1); };
  const ConvertKernels& convert = convert_kernels();
  const WorkerFloats copies(2 * sources_ * kPiece * width_);
  for (int64_t at = begin; at < end; at += kPiece) {
    const int64_t to = std::min(end, at + kPiece);
    widen_states(run, at, to, copies.data(), table);
    const auto dx_copy = [&](int j) { return copies.data() + (sources_ + j) * kPiece * width_; };
    const auto dx_row = [&](int j, int64_t r) {
      return (dstate(run, j).cells() + r * dstate(run, j).stride).b16();
    };
    for (int j = 0; j < sources_; ++j) {
      if (!copied(j)) continue;
      table.dx[j] = dx_copy(j) - at * width_, table.dx_strides[j] = width_;
      for (int64_t r = at; r < to && table.accumulate[j]; ++r)
        convert.widen(width_, dx_row(j, r), table.dx[j] + r * width_);
    }
    const WideRows added(direct(run), at, to);
    mix.direct = added.base(), mix.direct_stride = added.stride();
    const WideRows dy[kMaxStreams] = {{dstream(run, 0), at, to},
                                      {dstream(run, 1), at, to},
                                      {dstream(run, 2), at, to},
                                      {dstream(run, 3), at, to}};
    for (int c = 0; c < streams_; ++c) grads.streams[c] = dy[c].base(), grads.strides[c] = dy[c].stride();
    kernels_->bwd(at, to, mix, grads, scratch);
    grads.continues = true;
    for (int j = 0; j < sources_; ++j)
      for (int64_t r = at; r < to && copied(j); ++r)
        convert.narrow(width_, table.dx[j] + r * width_, dx_row(j, r));
  }
}

void DepthMix::backward(const Run& run) {
  StateTable table;
  const DepthMixRows mix = rows_of(run, table);
  const Scratch scratch = backward_scratch(run.scratch(), run.shards());
  float* dweights = scratch.dweights;
  const DepthMixGradients whole = gradients_of(run, table, dweights);
  generator_.start_backward(run, scratch.generator);
  const int64_t count = streams_ * sources_;
  const RowSums bias_sums(run.shards(), rows_, count), gain_sums(run.shards(), rows_, width_);
  const Tensor& x = run.in(newest());
  const Tensor dx = run.wants(newest()) ? run.din(newest()) : Tensor{};
  // The mixing has already written there, unless newest is a separate value and nothing is added directly.
  const bool adds = direct_ || adds_to_newest(run);
  const bool fp32 = all_fp32(run, true);
  tasks_with_scratch(bias_sums.blocks(), slots_, scratch.tiles, backward_tile_, [&](int64_t task, float* tile) {
    int64_t begin = 0, end = 0;
    bias_sums.range(task, &begin, &end);
    DepthMixGradients grads = whole;
    for (int c = 0; c < normed_; ++c)
      if (wants_gain_[c]) grads.gains[c] = gain_sums.partial(scratch.gain_partials[c], task);
    // Round the gradient of the newest state once: after the mixing and the generator have added to it.
    const NarrowRows dnewest(dx, begin, end, dx && run.accumulate(newest()));
    const Tensor dwide{dnewest.base(), dx.rows, dx.cols, dnewest.stride()};
    if (fp32) kernels_->bwd(begin, end, mix, grads, tile);
    else backward_pieces(run, begin, end, grads, dwide, tile);
    if (wants_bias_)
      sums_->bwd(begin, end, count, Activation::none, nullptr, false, dweights, count, nullptr,
                 bias_sums.partial(scratch.bias_partials, task));
    if (generator_.present()) generator_.backward(run, x, dweights, begin, end, task, dwide, adds, tile);
    else if (newest_given_ && dx && !adds)
      for (int64_t r = begin; r < end; ++r) std::fill_n(dnewest.row(r), width_, 0.0f);
  });
  if (wants_bias_) bias_sums.finish(scratch.bias_partials, run.sink(kMixBias));
  for (int c = 0; c < normed_; ++c)
    if (wants_gain_[c]) gain_sums.finish(scratch.gain_partials[c], run.sink(kMixGain + c));
  if (generator_.present()) generator_.finish_backward(run, x, dweights);
}

}  // namespace mudd
