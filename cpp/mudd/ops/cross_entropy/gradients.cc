// The gradients of h, head and bias from the dlogits of a chunk.
#include <algorithm>
#include <array>
#include <cstring>

#include "mudd/base/parallel.h"
#include "mudd/base/row_tasks.h"
#include "mudd/base/shard_tree.h"
#include "mudd/kernels/convert/wide_rows.h"
#include "mudd/ops/cross_entropy/node.h"

namespace mudd {
namespace {

template <class Body>
void over_columns(int64_t vocabulary, Body body) {
  constexpr int64_t kColumns = 1024;
  parallel_for((vocabulary + kColumns - 1) / kColumns,
               [&](int64_t task, int) { body(task * kColumns, std::min((task + 1) * kColumns, vocabulary)); });
}

}  // namespace

// If `beside` is set, compute it in the same parallel region as the last stripe.
void CrossEntropy::hidden_gradient(const Run& run, const Work& w, const Chunk& chunk,
                                   const GradBlock* beside) const {
  const Tensor& dh = run.din(kH);
  const Place rows = w.place(chunk);
  const bool waits = rows.list || (run.accumulate(kH) && stripe_ < w.vocabulary);
  const Cells to = dh.cells() + rows.first * dh.stride;
  over_stripes(run, w, Pack::plain, [&](int64_t begin, int64_t end, GemmBlock g) {
    g.a = w.dlogits() + begin;
    g.lda = w.vocabulary;
    g.c = waits ? Cells(w.s.hidden) : to;
    g.ldc = waits ? w.d : dh.stride;
    g.m = chunk.rows();
    g.n = w.d;
    g.k = end - begin;
    g.accumulate = begin > 0;  // one chain over the vocabulary
    if (run.accumulate(kH) && !waits) {
      g.epilogue.residual = to;
      g.epilogue.residual_stride = dh.stride;
    }
    if (end == w.vocabulary && beside) multiply_beside(g, *beside);
    else multiply(g);
  });
  if (waits) deal_hidden(run, w, chunk);
}

// Copy the chunk's gradients of h to their rows, or add them.
void CrossEntropy::deal_hidden(const Run& run, const Work& w, const Chunk& chunk) {
  const bool adds = run.accumulate(kH);
  parallel_rows(chunk.rows(), w.d, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t r = w.s.rows[chunk.begin + i];
      const NarrowRows to(run.din(kH), r, r + 1, adds);
      const float* from = w.s.hidden + i * w.d;
      if (adds)
        for (int64_t c = 0; c < w.d; ++c) to.row(r)[c] += from[c];
      else std::copy_n(from, w.d, to.row(r));
    }
  });
}

// Set the gradient of rows of h with ignored targets to zero.
void CrossEntropy::clear_uncounted(const Run& run, const Work& w) {
  if (run.accumulate(kH) || w.counted == w.rows) return;
  const Tensor& dh = run.din(kH);
  parallel_rows(w.rows, w.d, [&](int64_t begin, int64_t end) {
    const int32_t* counted = std::lower_bound(w.s.rows, w.s.rows + w.counted, begin);
    for (int64_t r = begin; r < end; ++r) {
      if (counted != w.s.rows + w.counted && *counted == r) ++counted;
      else std::memset((dh.cells() + r * dh.stride).data, 0, static_cast<size_t>(w.d * size_of(dh.dtype)));
    }
  });
}

// Set up the GEMM that adds the chunk to the gradient of the head. Sums of groups of shards wait as in
// base/shard_tree.h; the last one is written with the adds of the sink.
CrossEntropy::HeadGradient::HeadGradient(const CrossEntropy& op, const Run& run, const Work& w,
                                         const Chunk& chunk) {
  const GradSink& sink = run.sink(kHead);
  const int64_t size = w.vocabulary * w.d;
  const int group = chunk.first_shard / op.cut_.group, groups = run.shards().count() / op.cut_.group;
  const bool last_group = group == groups - 1;
  float* own = w.s.waiting + shard_tree::level_of(group, groups) * size;  // free until this group is complete
  int n_add = 0;
  if (chunk.last) {
    shard_tree::each_waiting(group, groups, [&](int level) { add[n_add++] = w.s.waiting + level * size; });
    if (last_group) {
      check(n_add + sink.n_add <= kMaxAdds, op.op(), "head: expected at most ", kMaxAdds, " sums to add, got ",
            n_add + sink.n_add);
      for (int a = 0; a < sink.n_add; ++a) add[n_add++] = sink.add[a];
    }
  }
  for (int s = 0; s <= chunk.shards; ++s)
    cuts[s] = std::clamp(w.s.shard_begin[chunk.first_shard + s], chunk.begin, chunk.end) - chunk.begin;
  block.x = w.dlogits();
  block.ldx = w.vocabulary;
  block.compute = op.compute_;
  const Place rows = w.place(chunk);
  block.dy = w.h.cells() + rows.first * w.h.stride;
  block.dy_rows = rows.list;
  block.ldy = w.h.stride;
  block.cuts = cuts.data();
  block.shards = chunk.shards;
  block.m = w.vocabulary;
  block.n = w.d;
  block.out = chunk.last && last_group ? sink.out : own;
  block.ldo = w.d;
  block.start = chunk.first ? nullptr : own;
  block.add = add.data();
  block.n_add = n_add;
  block.scratch = w.s.gradient_scratch;
  block.scratch_bytes = op.gradient_bytes_;
}

void CrossEntropy::chunk_gradients(const Run& run, const Work& w, const Chunk& chunk) const {
  const bool hidden = run.wants(kH) && chunk.rows() > 0;
  if (!run.wants(kHead)) {
    if (hidden) hidden_gradient(run, w, chunk, nullptr);
    return;
  }
  const HeadGradient head(*this, run, w, chunk);
  if (hidden) hidden_gradient(run, w, chunk, &head.block);
  else weight_gradient(head.block);
}

void CrossEntropy::clear_bias(const Run& run, const Work& w) const {
  std::fill_n(w.s.bias_sums, run.shards().count() * w.vocabulary, 0.0f);
}

// Add the chunk's dlogits, row by row, to the sums of its shards.
void CrossEntropy::bias_gradient(const Work& w, const Chunk& chunk) {
  over_columns(w.vocabulary, [&](int64_t begin, int64_t end) {
    for (int s = chunk.first_shard; s < chunk.first_shard + chunk.shards; ++s) {
      float* sum = w.s.bias_sums + s * w.vocabulary;
      const int64_t stop = std::min(w.s.shard_begin[s + 1], chunk.end);
      for (int64_t r = std::max(w.s.shard_begin[s], chunk.begin); r < stop; ++r) {
        const float* row = w.s.logits + (r - chunk.begin) * w.vocabulary;
        for (int64_t v = begin; v < end; ++v) sum[v] += row[v];
      }
    }
  });
}

// Sum the tree over shards, then the adds of the sink.
void CrossEntropy::finish_bias(const Run& run, const Work& w) const {
  const GradSink& sink = run.sink(bias_input());
  const int shards = run.shards().count();
  over_columns(w.vocabulary, [&](int64_t begin, int64_t end) {
    shard_tree::pairs(shards, [&](int left, int right) {
      for (int64_t v = begin; v < end; ++v)
        w.s.bias_sums[left * w.vocabulary + v] += w.s.bias_sums[right * w.vocabulary + v];
    });
    for (int64_t v = begin; v < end; ++v) {
      float sum = w.s.bias_sums[v];
      for (int a = 0; a < sink.n_add; ++a) sum = sink.add[a][v] + sum;
      sink.out[v] = sum;
    }
  });
}

}  // namespace mudd
