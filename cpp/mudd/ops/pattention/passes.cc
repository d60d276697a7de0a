// Forward and backward of pattention, block of rows by block of rows.
#include <algorithm>
#include <array>
#include <cstring>

#include "mudd/base/rng.h"
#include "mudd/graph/right_operand.h"
#include "mudd/graph/row_sums.h"
#include "mudd/graph/sink_gradient.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/kernels/convert/wide_rows.h"
#include "mudd/kernels/gemm/of_tensors.h"
#include "mudd/ops/pattention/node.h"

namespace mudd {
namespace {

Tensor rows_of(const Tensor& t, int64_t begin, int64_t end) {
  return {(t.cells() + begin * t.stride).data, end - begin, t.cols, t.stride, t.dtype};
}

// c = a b, b packed for `compute`.
GemmBlock gemm_of(const Tensor& a, const void* b, const Tensor& c, DType compute) {
  GemmBlock g = matmul_of(a, c, compute);
  g.b = b;
  return g;
}

}  // namespace

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

void Pattention::multiply_rows(const GemmBlock& g) const {
  if (cut_.whole) multiply(g);
  else gemm_kernels(g.compute).multiply(g);
}

// Compute a = x K^T + key_bias for the rows from `begin`.
void Pattention::scores_of(const Run& run, int p, const void* key, int64_t begin, const Tensor& a) const {
  GemmBlock g = gemm_of(rows_of(run.in(kX), begin, begin + a.rows), key, a, compute_);
  if (run.has_in(key_bias_of(p))) g.epilogue.bias = run.in(key_bias_of(p)).f32();
  multiply_rows(g);
}

// y = S W + value_bias + residual of rows [begin, end).
void Pattention::values_of(const Run& run, int p, const void* value, const float* factors, int64_t begin,
                           int64_t end, const float* s) const {
  const Projection& own = projections_[static_cast<size_t>(p)];
  const Tensor& y = run.out(p);
  const Tensor scores{const_cast<float*>(s), end - begin, own.n, own.n};
  const float* bias = run.has_in(value_bias_of(p)) ? run.in(value_bias_of(p)).f32() : nullptr;
  const bool later = factors && bias;  // the factors scale it, so not in the epilogue
  const NarrowRows wide(later ? y : Tensor{}, begin, end);
  GemmBlock g = gemm_of(scores, value, rows_of(y, begin, end), compute_);
  if (later) g.c = wide.row(begin), g.ldc = wide.stride();
  if (!factors) g.epilogue.bias = bias;
  if (has_residual_) add_residual(rows_of(run.in(kResidual), begin, end), &g);
  multiply_rows(g);
  if (later) kernels_->add_bias(end - begin, own.d_out, bias, factors + begin, wide.row(begin), wide.stride());
}

void Pattention::forward(const Run& run) {
  const Layout w = forward_layout(run.scratch());
  const int count = static_cast<int>(projections_.size());
  const float* factors = fill_factors(run, w.factors);
  std::array<Unpacked, 2 * kMaxProjections> unpacked;
  std::array<const void*, kMaxProjections> keys{}, values{};
  for (size_t p = 0; p < projections_.size(); ++p) {
    const int i = static_cast<int>(p);
    const RightOperand key("pattention", run, key_of(i), Pack::transposed, w.keys[p]);
    const RightOperand value("pattention", run, value_of(i), Pack::plain, w.values[p]);
    keys[p] = key.panels(), values[p] = value.panels();
    unpacked[2 * p] = key.pack, unpacked[2 * p + 1] = value.pack;
  }
  pack_weights(unpacked, compute_);
  over_blocks(w.slots, w.slot_bytes, [&](int64_t begin, int64_t end, std::byte* memory) {
    const Slot slot = slot_at(memory);
    for (int p = 0; p < count; ++p) {
      const Projection& own = projections_[static_cast<size_t>(p)];
      const Tensor a = trains_ && keep_scores_ ? kept_scores(run, p, begin, end)
                                               : Tensor{slot.a, end - begin, own.n, own.n, compute_};
      float* stats = (trains_ ? run.saved_as<float>(count) + 2 * p * rows_ : w.stats) + 2 * begin;
      scores_of(run, p, keys[static_cast<size_t>(p)], begin, a);
      over_rows(a.rows, [&](int64_t from, int64_t to) {
        const WideRows scores(a, from, to);
        kernels_->fwd(to - from, own.n, own.theta, scores.row(from), own.n,
                      factors ? factors + begin + from : nullptr, slot.s + from * own.n, own.n, stats + 2 * from);
      });
      values_of(run, p, values[static_cast<size_t>(p)], factors, begin, end, slot.s);
    }
  });
}

// Compute dA and S of projection p into w.scores, and its part of dx (empty: not requested): dx = add + dA K.
void Pattention::block_gradients(const Run& run, int p, const Layout& w, const float* factors,
                                 const Tokens& tokens, const Tensor& dx, const Tensor& add) const {
  const Projection& own = projections_[static_cast<size_t>(p)];
  const Tensor &dy = run.dout(p), da{w.scores, rows_, own.n, own.n, compute_};
  Tensor s;
  if (own.wants_value) s = {w.scores + stored(rows_ * own.n), rows_, own.n, own.n, compute_};
  const float* stats = run.saved_as<float>(static_cast<int>(projections_.size())) + 2 * p * rows_;
  over_blocks(w.slots, w.slot_bytes, [&](int64_t begin, int64_t end, std::byte* memory) {
    const Slot slot = slot_at(memory);
    const Tensor a =
        keep_scores_ ? kept_scores(run, p, begin, end) : Tensor{slot.a, end - begin, own.n, own.n, compute_};
    if (!keep_scores_) scores_of(run, p, tokens.key, begin, a);
    const Tensor block = rows_of(da, begin, end), ds = rounds() ? Tensor{slot.s, block.rows, own.n, own.n} : block;
    multiply_rows(gemm_of(rows_of(dy, begin, end), tokens.value, ds, compute_));
    over_rows(a.rows, [&](int64_t from, int64_t to) {
      const int64_t row = begin + from;
      const WideRows scores(a, from, to);
      const NarrowRows again(s, row, begin + to);
      float* slopes = ds.f32() + from * own.n;
      kernels_->bwd(to - from, own.n, own.theta, scores.row(from), own.n, factors ? factors + row : nullptr,
                    stats + 2 * row, slopes, own.n, again.row(row), own.n);
      if (rounds()) convert_kernels().narrow((to - from) * own.n, slopes, (block.cells() + from * own.n).b16());
    });
    if (!dx) return;
    GemmBlock back = gemm_of(block, tokens.key_plain, rows_of(dx, begin, end), compute_);
    if (add) add_residual(rows_of(add, begin, end), &back);
    multiply_rows(back);
  });
}

// Packed for one projection at a time.
Pattention::Tokens Pattention::backward_tokens(const Run& run, int p, const Layout& w) const {
  RightOperand key, key_plain;
  if (!keep_scores_) key = {"pattention", run, key_of(p), Pack::transposed, w.keys[0]};
  if (wants_x_) key_plain = {"pattention", run, key_of(p), Pack::plain, w.keys[1]};
  const RightOperand value("pattention", run, value_of(p), Pack::transposed, w.values[0]);
  const std::array unpacked{key.pack, key_plain.pack, value.pack};
  pack_weights(unpacked, compute_);
  return {key.panels(), key_plain.panels(), value.panels()};
}

void Pattention::backward(const Run& run) {
  const Layout w = backward_layout(run.scratch());
  const float* factors = fill_factors(run, w.factors);
  const int count = static_cast<int>(projections_.size());
  const Tensor dx = run.wants(kX) ? run.din(kX) : Tensor{};
  Tensor sum = dx && run.accumulate(kX) ? dx : Tensor{};  // the parts of dx so far
  int last = count - 1;
  while (last > 0 && !run.dout(last)) --last;
  for (int p = 0; p < count; ++p) {
    const Projection& own = projections_[static_cast<size_t>(p)];
    Tensor dy = run.dout(p);
    if (dy) {
      const Tokens tokens = backward_tokens(run, p, w);
      const bool meets = dx && dx.dtype == DType::bf16 && p < last;
      const Tensor to = meets ? Tensor{w.dx, rows_, d_in_, d_in_} : dx;
      block_gradients(run, p, w, factors, tokens, to, sum);
      sum = to;
    } else {  // output without a reader: all its gradients are sums over nothing
      std::memset(w.scores, 0, static_cast<size_t>(scores_bytes()));
    }
    const Tensor da{w.scores, rows_, own.n, own.n, compute_};
    const Tensor s{w.scores + stored(rows_ * own.n), rows_, own.n, own.n, compute_};
    const Tensor back = dy ? dy : Tensor{w.scores, rows_, own.d_out, 0};  // the same row of zeros for all rows
    token_gradients(run, p, da, s, back, w.gemm_scratch);
    if (run.wants(key_bias_of(p))) bias_gradient(run, da, nullptr, run.sink(key_bias_of(p)), w.gemm_scratch);
    if (run.wants(value_bias_of(p))) bias_gradient(run, back, factors, run.sink(value_bias_of(p)), w.gemm_scratch);
  }
  if (!dx || sum) return;
  for (int64_t r = 0; r < dx.rows; ++r)
    std::memset((dx.cells() + r * dx.stride).data, 0, static_cast<size_t>(d_in_ * size_of(dx.dtype)));
}

// Compute the gradients of the tokens of projection p: dA^T x and S^T dy, with rows summed by shards.
void Pattention::token_gradients(const Run& run, int p, const Tensor& da, const Tensor& s, const Tensor& dy,
                                 float* scratch) const {
  const auto gradient = [&](const Tensor& left, const Tensor& right, int input) {
    return SinkGradient("pattention", left, right, run.shards(), run.sink(input), scratch, gemm_bytes_, compute_);
  };
  const bool keys = run.wants(key_of(p)), values = run.wants(value_of(p));
  if (keys && values) {
    const SinkGradient of_keys = gradient(da, run.in(kX), key_of(p)), of_values = gradient(s, dy, value_of(p));
    const std::array both{of_keys.block, of_values.block};
    weight_gradients(both);
  } else if (keys) {
    weight_gradient(gradient(da, run.in(kX), key_of(p)).block);
  } else if (values) {
    weight_gradient(gradient(s, dy, value_of(p)).block);
  }
}

void Pattention::bias_gradient(const Run& run, const Tensor& x, const float* factors, const GradSink& sink,
                               float* partials) const {
  const RowSums sums(run.shards(), rows_, x.cols);
  parallel_for(sums.blocks(), [&](int64_t task, int) {
    int64_t begin = 0, end = 0;
    sums.range(task, &begin, &end);
    const WideRows rows(x, begin, end);
    kernels_->sum_rows(end - begin, x.cols, rows.row(begin), rows.stride(), factors ? factors + begin : nullptr,
                       sums.partial(partials, task));
  });
  sums.finish(partials, sink);
}

}  // namespace mudd
