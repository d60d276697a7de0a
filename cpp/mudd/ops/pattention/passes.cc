// Forward and backward of pattention, block of rows by block of rows.
#include <algorithm>
#include <array>

#include "mudd/base/rng.h"
#include "mudd/graph/row_sums.h"
#include "mudd/ops/gemm/sink_gradient.h"
#include "mudd/ops/pattention/node.h"

namespace mudd {

// Dropped samples have the factor 0, the others 1 / (1 - drop_path); null without dropping.
const float* Pattention::fill_factors(const Run& run, float* factors) const {
  if (!samples_drop()) return nullptr;
  const PhiloxKey key = philox_key(run.step().seed, purpose_);
  const int64_t samples = run.shards().samples(), each = rows_ / samples;
  const float kept = static_cast<float>(1.0 / (1.0 - drop_path_));
  for (int64_t s = 0; s < samples; ++s) {
    const PhiloxBlock words = philox(
        {static_cast<uint32_t>(run.step().step), static_cast<uint32_t>(run.step().first_sample + s), 0, 0}, key);
    std::fill_n(factors + s * each, each, uniform_double(words[0]) < drop_path_ ? 0.0f : kept);
  }
  return factors;
}

const float* Pattention::packed(const Run& run, int input, Pack how, float* scratch) const {
  if (const void* held = run.packed(input, how)) return static_cast<const float*>(held);
  if (!scratch) throw StateError("[pattention] a parameter came without its packed copy");
  const Tensor& w = run.in(input);
  pack_weight(w.f32(), w.rows, w.cols, how == Pack::transposed, scratch);
  return scratch;
}

void Pattention::multiply_rows(const GemmBlock& g) const {
  if (cut_.whole) multiply(g);
  else gemm_kernels().multiply(g);
}

// Rows [begin, end) of A = x K^T + key_bias, at a, n apart.
void Pattention::scores_of(const Run& run, int p, const float* key, int64_t begin, int64_t end, float* a) const {
  const Tensor& x = run.in(kX);
  GemmBlock g;
  g.a = x.f32() + begin * x.stride;
  g.lda = x.stride;
  g.b = key;
  g.c = a;
  g.ldc = g.n = projections_[static_cast<size_t>(p)].n;
  g.m = end - begin;
  g.k = d_in_;
  if (run.has_in(key_bias_of(p))) g.epilogue.bias = run.in(key_bias_of(p)).f32();
  multiply_rows(g);
}

void Pattention::forward(const Run& run) {
  const Layout w = forward_layout(run.scratch());
  const int count = static_cast<int>(projections_.size());
  const float* factors = fill_factors(run, w.factors);
  std::array<std::array<const float*, 2>, kMaxProjections> tokens{};
  for (int p = 0; p < count; ++p)
    tokens[static_cast<size_t>(p)] = {packed(run, key_of(p), Pack::transposed, w.keys[static_cast<size_t>(p)]),
                                      packed(run, value_of(p), Pack::plain, w.values[static_cast<size_t>(p)])};
  over_blocks(w.slots, w.slot_floats, [&](int64_t begin, int64_t end, float* s) {
    for (int p = 0; p < count; ++p) {
      const Projection& own = projections_[static_cast<size_t>(p)];
      float* a = trains_ && keep_scores_ ? run.saved_as<float>(p) + begin * own.n : s;
      float* stats = trains_ ? run.saved_as<float>(count) + 2 * p * rows_ : w.stats;
      scores_of(run, p, tokens[static_cast<size_t>(p)][0], begin, end, a);
      over_rows(begin, end, [&](int64_t from, int64_t to) {
        const int64_t at = (from - begin) * own.n;
        kernels_->fwd(to - from, own.n, own.theta, a + at, own.n, factors ? factors + from : nullptr, s + at,
                      own.n, stats + 2 * from);
      });
      const Tensor& y = run.out(p);
      const bool has_bias = run.has_in(value_bias_of(p));
      const float* bias = has_bias ? run.in(value_bias_of(p)).f32() : nullptr;
      GemmBlock g;
      g.a = s;
      g.lda = g.k = own.n;
      g.b = tokens[static_cast<size_t>(p)][1];
      g.c = y.f32() + begin * y.stride;
      g.ldc = y.stride;
      g.m = end - begin;
      g.n = own.d_out;
      if (!factors) g.epilogue.bias = bias;
      if (has_residual_) {
        g.epilogue.residual = run.in(kResidual).f32() + begin * run.in(kResidual).stride;
        g.epilogue.residual_stride = run.in(kResidual).stride;
      }
      multiply_rows(g);
      if (factors && bias) kernels_->add_bias(end - begin, own.d_out, bias, factors + begin, g.c.f32(), y.stride);
    }
  });
}

// dA and S of projection p into w.scores, and its part of dx.
void Pattention::block_gradients(const Run& run, int p, const Layout& w, const float* factors, const float* key,
                                 const float* key_plain, const float* value, bool add_dx) const {
  const Projection& own = projections_[static_cast<size_t>(p)];
  const Tensor& dy = run.dout(p);
  float *da = w.scores, *s = own.wants_value ? w.scores + rows_ * own.n : nullptr;
  const float* stats = run.saved_as<float>(static_cast<int>(projections_.size())) + 2 * p * rows_;
  over_blocks(w.slots, w.slot_floats, [&](int64_t begin, int64_t end, float* slot) {
    const float* a = keep_scores_ ? run.saved_as<float>(p) + begin * own.n : slot;
    if (!keep_scores_) scores_of(run, p, key, begin, end, slot);
    GemmBlock g;
    g.a = dy.f32() + begin * dy.stride;
    g.lda = dy.stride;
    g.b = value;
    g.c = da + begin * own.n;
    g.ldc = g.n = own.n;
    g.m = end - begin;
    g.k = own.d_out;
    multiply_rows(g);
    over_rows(begin, end, [&](int64_t from, int64_t to) {
      kernels_->bwd(to - from, own.n, own.theta, a + (from - begin) * own.n, own.n,
                    factors ? factors + from : nullptr, stats + 2 * from, da + from * own.n, own.n,
                    s ? s + from * own.n : nullptr, own.n);
    });
    if (!run.wants(kX)) return;
    const Tensor& dx = run.din(kX);
    GemmBlock back;
    back.a = da + begin * own.n;
    back.lda = back.k = own.n;
    back.b = key_plain;
    back.c = dx.f32() + begin * dx.stride;
    back.ldc = dx.stride;
    back.m = end - begin;
    back.n = d_in_;
    if (add_dx) {  // finished sums are added, so that every chain starts from zero
      back.epilogue.residual = back.c;
      back.epilogue.residual_stride = dx.stride;
    }
    multiply_rows(back);
  });
}

void Pattention::backward(const Run& run) {
  const Layout w = backward_layout(run.scratch());
  const float* factors = fill_factors(run, w.factors);
  bool dx_written = run.wants(kX) && run.accumulate(kX);
  for (int p = 0; p < static_cast<int>(projections_.size()); ++p) {
    const Projection& own = projections_[static_cast<size_t>(p)];
    Tensor dy = run.dout(p);
    if (dy) {
      const float* key = keep_scores_ ? nullptr : packed(run, key_of(p), Pack::transposed, w.keys[0]);
      const float* plain = wants_x_ ? packed(run, key_of(p), Pack::plain, w.keys[1]) : nullptr;
      const float* value = packed(run, value_of(p), Pack::transposed, w.values[0]);
      block_gradients(run, p, w, factors, key, plain, value, dx_written);
      dx_written = true;
    } else {  // nobody used this output: all its gradients are sums over nothing
      std::fill_n(w.scores, scores_floats(), 0.0f);
    }
    const Tensor da{w.scores, rows_, own.n, own.n}, s{w.scores + rows_ * own.n, rows_, own.n, own.n};
    if (run.wants(key_of(p))) token_gradient(run, da, run.in(kX), run.sink(key_of(p)), w.product);
    if (run.wants(key_bias_of(p))) bias_gradient(run, da, nullptr, run.sink(key_bias_of(p)), w.product);
    const Tensor back = dy ? dy : Tensor{w.scores, rows_, own.d_out, 0};  // the row of zeros, again and again
    if (run.wants(value_of(p))) token_gradient(run, s, back, run.sink(value_of(p)), w.product);
    if (run.wants(value_bias_of(p))) bias_gradient(run, back, factors, run.sink(value_bias_of(p)), w.product);
  }
  if (!run.wants(kX) || dx_written) return;
  const Tensor& dx = run.din(kX);
  for (int64_t r = 0; r < dx.rows; ++r) std::fill_n(dx.f32() + r * dx.stride, d_in_, 0.0f);
}

// The gradient of tokens [n, d]: left^T right, rows summed by shards.
void Pattention::token_gradient(const Run& run, const Tensor& left, const Tensor& right, const GradSink& sink,
                                float* scratch) const {
  sink_gradient("pattention", left, right, run.shards(), sink, scratch, product_bytes_);
}

void Pattention::bias_gradient(const Run& run, const Tensor& x, const float* factors, const GradSink& sink,
                               float* partials) const {
  const RowSums sums(run.shards(), rows_, x.cols);
  parallel_for(sums.blocks(), [&](int64_t task, int) {
    int64_t begin = 0, end = 0;
    sums.range(task, &begin, &end);
    kernels_->sum_rows(end - begin, x.cols, x.f32() + begin * x.stride, x.stride,
                       factors ? factors + begin : nullptr, sums.partial(partials, task));
  });
  sums.finish(partials, sink);
}

}  // namespace mudd
