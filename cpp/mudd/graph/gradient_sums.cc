#include "mudd/graph/gradient_sums.h"

#include <algorithm>

#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/base/shard_tree.h"

namespace mudd {
namespace {

// Return the levels of sums over the runs of a step. The last run adds to the waiting sums in place, so it
// needs no separate level.
int levels_for(int runs) { return std::max(1, shard_tree::levels(runs) - 1); }

// Return the elements of a parameter that a run computes the gradient of.
Part summed_part(const ParamStore& store, int i) {
  return store.deals(i) ? store.parameters().held(i) : store.parameters().whole(i);
}

}  // namespace

GradientSums::GradientSums(const Graph& graph, const Plan& plan, const ParamStore& store,
                           const GradientOptions& options)
    : runs_(options.runs), sums_(store.parameters().count()), first_(sums_.size()), strides_(sums_.size()) {
  check(runs_ <= 1 << kMaxGradAdds, "executor", "runs_per_step: expected at most ", 1 << kMaxGradAdds, ", got ",
        runs_);
  if (options.bucket_bytes > 0) cut_ = store.cut();
  if (cut_) book_cut(plan, store, options.bucket_bytes);
  for (const GradientUse& u : plan.gradients) {
    if (cut_) break;
    const Node& node = *graph.nodes()[plan.schedule[u.position].node].node;
    auto& uses = sums_[u.parameter];
    if (std::ssize(uses) <= u.use) uses.resize(u.use + 1);
    const Part part = summed_part(store, u.parameter);
    first_[u.parameter] = part.begin;
    // Sharded experts: the shards of one rank over all graph runs of a step form one subtree, so keep a sum per
    // rank until the last run.
    const int ranks = store.deals(u.parameter) && runs_ > 1 ? store.experts()->ranks() : 1;
    if (ranks > 1) strides_[u.parameter] = part.size();
    book(uses[u.use], store.parameters().at(u.parameter), part.size() * ranks, node.gradient_rows(u.input),
         options.by_rows);
  }
  waiting_ = Arena(waiting_bytes_, store.booked_only());
  if (!options.memory) own_ = Arena(plane_bytes_, store.booked_only());
  plane_ = options.memory ? options.memory(plane_bytes_) : own_.data();
  if (cut_) place_slices();
  totals_.resize(sums_.size());
  for (size_t i = 0; i < sums_.size(); ++i)
    for (std::vector<Sum>& levels : sums_[i]) {
      for (Sum& sum : levels) place(sum, &sum == &levels.back() ? plane_ : waiting_.data());
      totals_[i].emplace_back(std::vector<RowGradient>{levels.back().rows});
    }
}

// Plan the sums of one use. rows_per_run: rows of the table that a run can touch, or 0. A sum over r runs has
// at most r times as many; with a row list it also has an index for every row. elements: of a whole sum.
void GradientSums::book(std::vector<Sum>& levels, const Parameter& parameter, int64_t elements,
                        int64_t rows_per_run, bool by_rows) {
  const int64_t rows = parameter.rows(), width = parameter.cols(), whole = aligned(elements * 4);
  const int64_t count = levels_for(runs_), place = aligned(rows * 4);
  const auto capacity = [&](int64_t level) {
    return std::min(rows, rows_per_run * (level + 1 < count ? int64_t{1} << level : runs_));
  };
  const auto list = [&](int64_t level) {
    return place + aligned(capacity(level) * 4) + aligned(capacity(level) * width * 4);
  };
  int64_t few = 0;
  for (int64_t level = 0; level < count; ++level) few += list(level);
  by_rows = by_rows && rows_per_run > 0 && 2 * few <= count * whole;
  for (int64_t level = 0; level < count; ++level) {
    int64_t& end = level + 1 < count ? waiting_bytes_ : plane_bytes_;
    Sum sum;
    sum.offset = end;
    if (by_rows) sum.rows = {.table_rows = rows, .width = width, .capacity = capacity(level)};
    end += by_rows ? list(level) : whole;
    levels.push_back(sum);
  }
}

// Buckets that are in memory at the same time get separate memory, like buffers of the arena.
void GradientSums::book_cut(const Plan& plan, const ParamStore& store, int64_t bucket_bytes) {
  const auto bytes_of = [&](int i) { return aligned(summed_part(store, i).size() * 4); };
  buckets_ = cut_buckets(store.parameters(), plan.gradients, bucket_bytes);
  std::vector<Buffer> buffers;
  for (const GradientBucket& b : buckets_) {
    buffers.push_back({.first = b.first, .last = b.last});
    for (int u = b.begin; u < b.end; ++u) buffers.back().bytes += bytes_of(plan.gradients[u].parameter);
  }
  plane_bytes_ = buffers.empty() ? 0 : assign_offsets(buffers, {});
  slices_.resize(sums_.size());
  for (size_t b = 0; b < buckets_.size(); ++b) {
    int64_t at = buffers[b].offset;
    for (int u = buckets_[b].begin; u < buckets_[b].end; ++u) {
      const GradientUse& use = plan.gradients[u];
      auto& uses = sums_[use.parameter];
      auto& own = slices_[use.parameter];
      if (std::ssize(uses) <= use.use) uses.resize(use.use + 1), own.resize(use.use + 1);
      uses[use.use] = {Sum{.offset = at}};
      own[use.use].resize(static_cast<size_t>(levels_for(runs_)));
      first_[use.parameter] = summed_part(store, use.parameter).begin;
      at += bytes_of(use.parameter);
      waiting_bytes_ += levels_for(runs_) * aligned(cut_->own(use.parameter).size() * 4);
    }
  }
}

void GradientSums::place_slices() {
  std::byte* at = waiting_.data();
  for (size_t i = 0; i < slices_.size(); ++i)
    for (std::vector<float*>& levels : slices_[i])
      for (float*& level : levels) {
        level = reinterpret_cast<float*>(at);
        at += aligned(cut_->own(static_cast<int>(i)).size() * 4);
      }
}

// Add like a GradSink: out = add[n-1] + (... + (add[0] + sum)).
void GradientSums::take(int parameter, int use, int run) {
  const Part own = cut_->own(parameter);
  const float* sum = last(parameter, use).all + own.begin - first_[parameter];
  const std::vector<float*>& level = slices_[parameter][use];
  std::vector<const float*> add;
  shard_tree::each_waiting(run, runs_, [&](int i) { add.push_back(level[i]); });
  float* out = level[std::min<size_t>(shard_tree::level_of(run, runs_), level.size() - 1)];
  constexpr int64_t kPiece = 16384;
  parallel_for((own.size() + kPiece - 1) / kPiece, [&](int64_t task, int) {
    for (int64_t i = task * kPiece; i < std::min(own.size(), (task + 1) * kPiece); ++i) {
      float v = sum[i];
      for (const float* a : add) v = a[i] + v;
      out[i] = v;
    }
  });
}

void GradientSums::place(Sum& sum, std::byte* memory) {
  std::byte* at = memory + sum.offset;
  if (sum.rows.capacity == 0) {
    sum.all = reinterpret_cast<float*>(at);
    return;
  }
  sum.rows = rows_at(sum.rows, at);
}

// The index of all rows comes first, then the rows of the list and their values.
RowGradient GradientSums::rows_at(RowGradient sizes, std::byte* memory) {
  Pieces pieces(memory);
  sizes.place = pieces.take<int32_t>(sizes.table_rows);
  sizes.ids = pieces.take<int32_t>(sizes.capacity);
  sizes.values = pieces.take<float>(sizes.capacity * sizes.width);
  return sizes;
}

void GradientSums::point(GradSink& sink, int parameter, int use, int run) {
  std::vector<Sum>& level = sums_[parameter][use];
  const auto rows_of = [](Sum& sum) { return sum.all ? nullptr : &sum.rows; };
  sink.n_add = 0;
  sink.rank_stride = strides_[parameter];
  if (cut_) {
    sink.out = level.back().all;
    return;
  }
  shard_tree::each_waiting(run, runs_, [&](int i) {
    sink.add[sink.n_add] = level[i].all;
    sink.add_rows[sink.n_add++] = rows_of(level[i]);
  });
  Sum& last = level[std::min<size_t>(shard_tree::level_of(run, runs_), level.size() - 1)];
  sink.out = last.all;
  sink.out_rows = rows_of(last);
}

const RowTotal* GradientSums::rows(int parameter, int use) const {
  return last(parameter, use).all ? nullptr : &totals_[parameter][use];
}

GradientSums::TotalPlace GradientSums::place(int parameter, int use) const {
  const Sum& sum = last(parameter, use);
  return {.offset = sum.offset, .by_rows = sum.all ? 0 : sum.rows.capacity};
}

RowGradient GradientSums::rows_at(const Parameter& parameter, std::byte* plane, TotalPlace place) {
  return rows_at({.table_rows = parameter.rows(), .width = parameter.cols(), .capacity = place.by_rows},
                 plane + place.offset);
}

void GradientSums::release() {
  own_.release();
  waiting_.release();
}

}  // namespace mudd
