// The passes of attention: slices of q, k and v, the cache, forward over tiles of queries, backward over pairs of
// chunks.
#include <algorithm>

#include "mudd/base/math.h"
#include "mudd/base/parallel.h"
#include "mudd/base/rounding.h"
#include "mudd/base/row_tasks.h"
#include "mudd/graph/row_sums.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/kernels/convert/wide_rows.h"
#include "mudd/ops/attention/node.h"

namespace mudd {

namespace {

// Backward runs in waves over pairs of chunks of this many positions: wave w computes the pairs (keys c,
// queries c + w). So no two tasks of a wave write the same gradient, and the order of every sum depends on T
// only.
constexpr int64_t kChunk = 288;

}  // namespace

AttentionSlice Attention::slice(const Run& run, int64_t b, int64_t g) const {
  const Tensor &q = run.in(kQuery), &k = run.in(kKey), &v = run.in(kValue), &o = run.out(0);
  AttentionSlice s;
  s.group = q_.heads / k_.heads;
  s.dim = q_.dim;
  s.queries = s.keys = q_.time;
  s.causal = causal_;
  s.window = window_;
  s.scale = static_cast<float>(scale_ > 0 ? scale_ : 1.0 / math::sqrt(static_cast<double>(q_.dim)));
  s.activation = activation_;
  s.divisor = static_cast<float>(divisor_ > 0 ? divisor_ : q_.time);
  s.eps = static_cast<float>(eps_);
  s.q_row = q_.row_stride(q), s.q_head = q_.head_stride(q);
  s.o_row = q_.row_stride(o), s.o_head = q_.head_stride(o);
  s.q = q.cells() + b * q_.time * s.q_row + g * s.group * s.q_head;
  s.o = o.cells() + b * q_.time * s.o_row + g * s.group * s.o_head;
  if (cached_) {
    const Tensor &kc = run.in(kKeyCache), &vc = run.in(kValueCache);
    s.first_query = std::min(run.step().cache_length, cache_rows_ - q_.time);  // less only in a full ring
    s.keys = s.first_query + q_.time;
    s.k_row = kc.stride, s.v_row = vc.stride;
    s.k = kc.f32() + (b * k_.heads + g) * cache_rows_ * kc.stride;
    s.v = vc.f32() + (b * k_.heads + g) * cache_rows_ * vc.stride;
  } else {
    s.k_row = k_.row_stride(k), s.v_row = k_.row_stride(v);
    s.k = k.cells() + b * k_.time * s.k_row + g * k_.head_stride(k);
    s.v = v.cells() + b * k_.time * s.v_row + g * k_.head_stride(v);
    s.lse = run.saved_as<float>(0) + (b * q_.heads + g * s.group) * q_.time;
  }
  s.first_head = g * s.group;
  if (drops_) s.drop = Dropout(dropout_, run.step().seed, purpose_, run.step().step, run.step().first_sample + b);
  if (run.has_in(kSegments)) s.segments = run.in(kSegments).i32() + b * q_.time;
  if (!ring_mask_.empty() && run.step().cache_length >= cache_rows_) {  // a window does not help in ring order
    s.window = kNoWindow;
    s.key_mask = ring_mask_.data();
  }
  if (run.has_in(kKeyMask)) s.key_mask = run.in(kKeyMask).i32() + b * (cached_ ? cache_rows_ : q_.time);
  return s;
}

// Write the new keys and values to rows cache_length .. cache_length + T - 1 of the caches.
void Attention::extend_cache(const Run& run) const {
  const int64_t length = run.step().cache_length;
  const bool fits = length >= 0 && length + q_.time <= cache_rows_;
  check(fits || (ring_ && q_.time == 1 && length >= 0), "attention", "cache_length: expected at most ",
        cache_rows_ - q_.time, " (Tmax - T), got ", length);
  const int64_t begin = fits ? length : length % cache_rows_;
  const auto copy = [&](Input from, Input to, int64_t slice_index) {
    const Tensor &x = run.in(from), &cache = run.in(to);
    const int64_t row = k_.row_stride(x), b = slice_index / k_.heads, g = slice_index % k_.heads;
    const ConstCells src = x.cells() + (b * k_.time * row + g * k_.head_stride(x));
    float* dst = cache.f32() + (slice_index * cache_rows_ + begin) * cache.stride;
    for (int64_t t = 0; t < k_.time; ++t) {
      const ConstCells from = src + t * row;
      float* to = dst + t * cache.stride;
      if (from.type == DType::bf16) convert_kernels().widen(k_.dim, from.b16(), to);
      else std::copy_n(from.f32(), k_.dim, to);
    }
  };
  const auto extend = [&](int64_t slice_index, int) {
    copy(kKey, kKeyCache, slice_index);
    copy(kValue, kValueCache, slice_index);
  };
  // Waking the threads takes longer than copying the rows of one token.
  constexpr int64_t kSmallCopy = 1 << 14;
  const int64_t slices = k_.batch * k_.heads;
  if (slices * k_.time * k_.dim > kSmallCopy) return parallel_for(slices, extend);
  for (int64_t i = 0; i < slices; ++i) extend(i, 0);
}

// Mask a full ring: the newest token is at row length mod Tmax, and older ones are before it.
void Attention::mask_ring(const Run& run) {
  const int64_t newest = run.step().cache_length % cache_rows_;
  for (int64_t row = 0; row < cache_rows_; ++row)
    ring_mask_[static_cast<size_t>(row)] = (newest - row + cache_rows_) % cache_rows_ < window_ ? 1 : 0;
}

void Attention::forward(const Run& run) {
  if (q_.rows() == 0) return;
  if (cached_) extend_cache(run);
  if (!ring_mask_.empty()) mask_ring(run);
  const int64_t group = q_.heads / k_.heads, rows = kernels_->query_tile;
  const int64_t together = std::min(group, std::max<int64_t>(1, rows / q_.time));  // heads in one tile
  const int64_t head_tiles = ceil_div(group, together), time_tiles = ceil_div(q_.time, rows);
  const int64_t tasks = q_.batch * k_.heads * head_tiles * time_tiles;
  tasks_with_scratch(tasks, slots_, run.scratch(), fwd_bytes_, [&](int64_t task, float* scratch) {
    const int64_t slice_index = task / (head_tiles * time_tiles), rest = task % (head_tiles * time_tiles);
    const int64_t h = rest / time_tiles * together;
    const int64_t t = (time_tiles - 1 - rest % time_tiles) * rows;  // the longest tiles first
    const QueryTile tile{h, std::min(h + together, group), t, std::min(t + rows, q_.time)};
    kernels_->fwd(slice(run, slice_index / k_.heads, slice_index % k_.heads), tile, scratch);
  });
}

void Attention::backward(const Run& run) {
  if (q_.rows() == 0) return;
  const BackwardScratch scratch = backward_scratch(run.scratch());
  const Tensor& dout = run.dout(0);
  AttentionGrad grad;
  grad.do_row = q_.row_stride(dout), grad.do_head = q_.head_stride(dout);
  const int64_t blocks = ceil_div(q_.time, kRowBlock);
  parallel_for(q_.batch * k_.heads * blocks, [&](int64_t task, int) {
    const int64_t slice_index = task / blocks, t = task % blocks * kRowBlock;
    const int64_t b = slice_index / k_.heads, g = slice_index % k_.heads;
    const AttentionSlice s = slice(run, b, g);
    AttentionGrad own = grad;
    own.dout = dout.cells() + (b * q_.time * grad.do_row + g * s.group * grad.do_head);
    kernels_->delta(s, own, t, std::min(t + kRowBlock, q_.time), scratch.delta + slice_index * s.group * q_.time);
  });
  if (shares_gradient(run)) {
    backward_slices(run, scratch);
  } else {
    for (int64_t wave = 0; wave < waves(); ++wave) backward_wave(run, wave, scratch);
  }
  for (const int input : {kQuery, kKey, kValue}) narrow_gradient(run, input, scratch);
}

// Return the memory for the gradient sums of an input: in place, or fp32 scratch if it is stored in bf16.
Tensor Attention::gradient_sums(const Run& run, int input, const BackwardScratch& scratch) const {
  const Tensor& din = run.din(input);
  if (din.dtype != DType::bf16) return din;
  return {scratch.sums[input], din.rows, din.cols, din.cols, DType::f32};
}

void Attention::narrow_gradient(const Run& run, int input, const BackwardScratch& scratch) const {
  if (!run.wants(input) || run.din(input).dtype != DType::bf16) return;
  const Tensor &din = run.din(input), sums = gradient_sums(run, input, scratch);
  const bool add = run.accumulate(input);
  parallel_rows(din.rows, din.cols, [&](int64_t begin, int64_t end) {
    const NarrowRows to(din, begin, end, add);
    for (int64_t r = begin; r < end; ++r) {
      const float* from = sums.f32() + r * sums.stride;
      for (int64_t j = 0; j < din.cols; ++j) to.row(r)[j] = add ? to.row(r)[j] + from[j] : from[j];
    }
  });
}

// Return true if queries and keys, or queries and values, are one value with one gradient.
bool Attention::shares_gradient(const Run& run) const {
  const auto same = [&](int other) { return run.wants(other) && run.din(other).data == run.din(kQuery).data; };
  return run.wants(kQuery) && (same(kKey) || same(kValue));
}

// Return the count of waves of backward with a key in the window of a query.
int64_t Attention::waves() const {
  return std::min(ceil_div(q_.time, kChunk), ceil_div(std::min(window_, q_.time) + kChunk - 1, kChunk));
}

// Compute all pairs of a slice in order on one worker: if two gradients are one value, pairs of a wave would
// write the same rows.
void Attention::backward_slices(const Run& run, const BackwardScratch& scratch) const {
  const int64_t chunks = ceil_div(q_.time, kChunk);
  tasks_with_scratch(q_.batch * k_.heads, slots_, scratch.workers, bwd_bytes_,
                     [&](int64_t slice_index, float* own) {
                       for (int64_t wave = 0; wave < waves(); ++wave)
                         for (int64_t keys = 0; keys < (causal_ ? chunks - wave : chunks); ++keys)
                           backward_pair(run, slice_index, keys, (keys + wave) % chunks, scratch, own);
                     });
}

void Attention::backward_wave(const Run& run, int64_t wave, const BackwardScratch& scratch) const {
  const int64_t chunks = ceil_div(q_.time, kChunk), pairs = causal_ ? chunks - wave : chunks;
  tasks_with_scratch(q_.batch * k_.heads * pairs, slots_, scratch.workers, bwd_bytes_,
                     [&](int64_t task, float* own) {
                       const int64_t keys = task % pairs;
                       backward_pair(run, task / pairs, keys, (keys + wave) % chunks, scratch, own);
                     });
}

// Compute chunk `keys` of the keys with chunk `queries` of the queries of a slice. The pair of a chunk with
// itself comes first and sets the gradients that later pairs add to.
void Attention::backward_pair(const Run& run, int64_t slice_index, int64_t keys, int64_t queries,
                              const BackwardScratch& scratch, float* own) const {
  const Tensor& dout = run.dout(0);
  const int64_t b = slice_index / k_.heads, g = slice_index % k_.heads;
  const bool first = keys == queries;
  const AttentionSlice s = slice(run, b, g);
  AttentionGrad grad;
  grad.key_begin = keys * kChunk, grad.key_end = std::min(grad.key_begin + kChunk, q_.time);
  grad.query_begin = queries * kChunk, grad.query_end = std::min(grad.query_begin + kChunk, q_.time);
  grad.do_row = q_.row_stride(dout), grad.do_head = q_.head_stride(dout);
  grad.dout = dout.cells() + (b * q_.time * grad.do_row + g * s.group * grad.do_head);
  grad.delta = scratch.delta + slice_index * s.group * q_.time;
  const auto sets = [&](int input, const Tensor& sums) {
    return first && (sums.data != run.din(input).data || !run.accumulate(input));
  };
  if (run.wants(kQuery)) {
    const Tensor dq = gradient_sums(run, kQuery, scratch);
    grad.dq_row = q_.row_stride(dq), grad.dq_head = q_.head_stride(dq);
    grad.dq = dq.f32() + b * q_.time * grad.dq_row + g * s.group * grad.dq_head;
    grad.set_dq = sets(kQuery, dq);
  }
  if (run.wants(kKey)) {
    const Tensor dk = gradient_sums(run, kKey, scratch);
    grad.dk_row = k_.row_stride(dk);
    grad.dk = dk.f32() + b * k_.time * grad.dk_row + g * k_.head_stride(dk);
    grad.set_dk = sets(kKey, dk);
  }
  if (run.wants(kValue)) {
    const Tensor dv = gradient_sums(run, kValue, scratch);
    grad.dv_row = k_.row_stride(dv);
    grad.dv = dv.f32() + b * k_.time * grad.dv_row + g * k_.head_stride(dv);
    grad.set_dv = sets(kValue, dv);
  }
  kernels_->bwd(s, grad, own);
}

}  // namespace mudd
