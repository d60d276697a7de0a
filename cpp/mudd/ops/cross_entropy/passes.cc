// Forward and backward of cross_entropy, chunk of rows by chunk of rows.
#include <algorithm>

#include "mudd/base/math.h"
#include "mudd/base/parallel.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/ops/cross_entropy/node.h"

namespace mudd {

// Collect the rows with targets; from here on, rows are indices into this list.
void CrossEntropy::collect_targets(const Run& run, Work* w) const {
  const Tensor& in = run.in(kTargets);
  const Shards& shards = run.shards();
  for (int s = 0; s < shards.count(); ++s) {
    w->s.shard_begin[s] = w->counted;
    for (int64_t r = shards.row_begin(s, w->rows); r < shards.row_begin(s + 1, w->rows); ++r) {
      const int64_t sample = r / in.cols, t = r % in.cols;
      const int32_t target = in.i32()[sample * in.stride + t];
      if (target >= w->vocabulary)
        fail(op(), "targets: expected values below ", w->vocabulary, ", got ", target, " at [", sample, ", ", t,
             "]");
      if (target < 0) continue;
      w->s.targets[w->counted] = target;
      w->s.rows[w->counted++] = static_cast<int32_t>(r);
    }
  }
  w->s.shard_begin[shards.count()] = w->counted;
}

CrossEntropy::Place CrossEntropy::Work::place(const Chunk& chunk) const {
  if (chunk.rows() == 0) return {};
  const int32_t* list = s.rows + chunk.begin;
  const bool gaps = list[chunk.rows() - 1] - list[0] != chunk.rows() - 1;
  return gaps ? Place{0, list} : Place{list[0], nullptr};
}

CrossEntropy::Work CrossEntropy::work(const Run& run, bool backward) const {
  Work w;
  w.h = run.in(kH);
  w.head = run.in(kHead);
  if (run.has_in(bias_input())) w.bias = run.in(bias_input()).f32();
  w.rows = w.h.rows;
  w.vocabulary = w.head.rows;
  w.d = w.head.cols;
  w.s = layout(run.scratch(), w.rows, w.vocabulary, w.d, run.shards().count(), backward);
  collect_targets(run, &w);
  return w;
}

void CrossEntropy::logits(const Run& run, const Work& w, const Chunk& chunk) const {
  const Place rows = w.place(chunk);
  over_stripes(run, w, Pack::transposed, [&](int64_t begin, int64_t end, GemmBlock g) {
    g.a = w.h.cells() + rows.first * w.h.stride;
    g.a_rows = rows.list;
    g.lda = w.h.stride;
    g.c = w.s.logits + begin;
    g.ldc = w.vocabulary;
    g.m = chunk.rows();
    g.n = end - begin;
    g.k = w.d;
    if (w.bias) g.epilogue.bias = w.bias + begin;
    multiply(g);
  });
}

void CrossEntropy::row_softmax(const Run&, const Work& w, int64_t r, float* row, const float* weight) const {
  const int32_t* target = w.s.targets + r;
  if (weight) kernels_->bwd(1, w.vocabulary, row, w.vocabulary, target, *weight, w.s.stats + r);
  else kernels_->fwd(1, w.vocabulary, row, w.vocabulary, target, w.s.stats + r);
}

double CrossEntropy::row_loss(const Work& w, int64_t r) const {
  const RowSoftmax& row = w.s.stats[r];
  return math::log(row.sum) + (static_cast<double>(row.max) - static_cast<double>(row.target));
}

// Compute row statistics of the chunk; in a backward pass the logits also become weighted dlogits, which
// `narrowed` gets in bf16.
void CrossEntropy::softmax(const Run& run, const Work& w, const Chunk& chunk, bool backward,
                           bf16* narrowed) const {
  constexpr int64_t kRows = 4;
  parallel_for((chunk.rows() + kRows - 1) / kRows, [&](int64_t task, int) {
    const int64_t end = std::min(chunk.begin + (task + 1) * kRows, chunk.end);
    for (int64_t r = chunk.begin + task * kRows; r < end; ++r) {
      float* row = w.s.logits + (r - chunk.begin) * w.vocabulary;
      if (!backward) {
        row_softmax(run, w, r, row, nullptr);
        continue;
      }
      int s = chunk.first_shard;
      while (r >= w.s.shard_begin[s + 1]) ++s;
      const float weight = static_cast<float>(row_weight(run, w, r, s));
      row_softmax(run, w, r, row, &weight);
      if (narrowed) convert_kernels().narrow(w.vocabulary, row, narrowed + (r - chunk.begin) * w.vocabulary);
    }
  });
}

double CrossEntropy::row_weight(const Run& run, const Work&, int64_t, int s) const {
  return run.dout(0) ? static_cast<const double*>(run.dout(0).data)[s] : run.step().loss_scale;
}

// Compute the weighted dlogits of the chunk and add them to the gradient of the bias.
void CrossEntropy::make_dlogits(const Run& run, const Work& w, const Chunk& chunk) const {
  int64_t begin = chunk.begin;
  while (begin < chunk.end) {
    Chunk part = chunk;
    part.begin = begin;
    part.end = begin = std::min(begin + std::max<int64_t>(1, w.s.logit_rows), chunk.end);
    logits(run, w, part);
    softmax(run, w, part, true, w.s.dlogits ? w.s.dlogits + (part.begin - chunk.begin) * w.vocabulary : nullptr);
    if (run.wants(bias_input())) bias_gradient(w, part);
  }
}

void CrossEntropy::sum_losses(const Run& run, const Work& w) const {
  for (int s = 0; s < run.shards().count(); ++s) {
    const int64_t begin = w.s.shard_begin[s], end = w.s.shard_begin[s + 1];
    double loss = 0;
    for (int64_t r = begin; r < end; ++r) loss += row_loss(w, r);
    static_cast<double*>(run.out(0).data)[s] = loss;
    static_cast<double*>(run.out(1).data)[s] = static_cast<double>(end - begin);
  }
  count_guessed(run, w);
  finish(run, w);
}

void CrossEntropy::count_guessed(const Run& run, const Work& w) const {
  const int64_t length = run.in(kTargets).cols;
  int64_t r = 0;
  for (int64_t sample = 0; sample * length < w.rows; ++sample) {
    const int64_t first = r;
    int64_t guessed = 0;
    double nats = 0;
    for (; r < w.counted && w.s.rows[r] < (sample + 1) * length; ++r) {
      guessed += int{w.s.stats[r].guessed};
      if (by_sample_)
        nats += CrossEntropy::row_loss(w, r);  // the cross entropy also in an op that derives from it
    }
    const int64_t counted = r - first;
    float* to = run.out(2).f32() + sample * run.out(2).stride;
    to[0] = static_cast<float>(guessed);
    to[1] = static_cast<float>(static_cast<double>(guessed) / static_cast<double>(std::max<int64_t>(1, counted)));
    if (!by_sample_) continue;
    to[2] = static_cast<float>(nats);
    to[3] = static_cast<float>(counted);
  }
}

void CrossEntropy::count_flops(int64_t rows, int64_t weights) {
  flops_ = 2.0 * static_cast<double>(rows) * static_cast<double>(weights);
  backward_flops_ = flops_ * (int{wants_h_} + int{wants_head_});
}

void CrossEntropy::row_losses(const Run& run, const Work& w) {
  count_flops(w.counted, w.vocabulary * w.d);
  const int64_t step = w.s.chunk_rows;
  for (int64_t begin = 0; begin < w.counted; begin += step) {
    const Chunk chunk{begin, std::min(begin + step, w.counted), 0, 0, true, true};
    logits(run, w, chunk);
    softmax(run, w, chunk, false);
  }
}

void CrossEntropy::row_gradients(const Run& run, const Work& w) {
  count_flops(w.counted, w.vocabulary * w.d);
  const int shards = run.shards().count();
  if (run.wants(bias_input())) clear_bias(run, w);
  if (run.wants(kH)) clear_uncounted(run, w);
  const int group = wants_head_ ? cut_.group : shards;  // without sums over rows chunks ignore shard borders
  for (int s = 0; s < shards; s += group) {
    const int64_t begin = w.s.shard_begin[s], end = w.s.shard_begin[s + group];
    const int64_t step = std::max<int64_t>(1, w.s.chunk_rows);
    int64_t at = begin;
    do {  // at least once: shards without rows still have a gradient of zero
      const int64_t stop = std::min(at + step, end);
      const Chunk chunk{at, stop, s, group, at == begin, stop == end};
      make_dlogits(run, w, chunk);
      chunk_gradients(run, w, chunk);
      at = stop;
    } while (at < end);
  }
  if (run.wants(bias_input())) finish_bias(run, w);
}

void CrossEntropy::forward(const Run& run) {
  const Work w = work(run, false);
  start(run, w, false);
  row_losses(run, w);
  sum_losses(run, w);
}

void CrossEntropy::backward(const Run& run) {
  const Work w = work(run, true);
  start(run, w, true);
  row_gradients(run, w);
  if (computes_in_backward()) sum_losses(run, w);
}

}  // namespace mudd
