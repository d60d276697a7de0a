#include "mudd/train/shared_step.h"

#include <algorithm>
#include <numeric>

#include "mudd/base/shard_tree.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/kernels/reduce/reduce.h"

namespace mudd {

SharedStep::SharedStep(const Executor& executor, NodeGradients& gradients, bool batch_sums,
                       const std::function<bool(const Parameter&)>& whole, bool narrow)
    : GradientSync(executor),
      gradients_(gradients),
      comm_(gradients.comm()),
      batch_sums_(batch_sums || (executor.store().experts() && executor.store().experts()->ranks() > 1)),
      narrow_(narrow),
      ownership_(executor.store().parameters(), executor.plan(), comm_.world(), whole, gradients.bucket_bytes()),
      over_ranks_(executor, gradients, ownership_.slices(),
                  ExpertParts(executor.store().parameters(), executor.store().experts(), whole)),
      exchange_(executor, comm_, [this](int i, int rank) { return over_ranks_.part(i, rank); }) {
  read_places();
  book_totals();
  flags_ = comm_.window(std::ssize(ownership_.buckets()) * static_cast<int64_t>(sizeof(uint64_t)));
  arrived_ = comm_.window(std::ssize(ownership_.buckets()) * static_cast<int64_t>(sizeof(uint64_t)));
  homes_.resize(ownership_.buckets().size());
  on_their_way_.resize(homes_.size());
  for (int i = 0; i < executor.store().parameters().count(); ++i)
    if (ownership_.home(i) >= 0 && !over_ranks_.deals(i)) homes_[ownership_.home(i)].push_back(i);
}

// Exchange the places of the totals: buffers differ if one process has few rows of a table and another has
// many.
void SharedStep::read_places() {
  const RankSums::Places mine = over_ranks_.own_places();
  RankSums::Places all(mine.size() * static_cast<size_t>(comm_.world()));
  comm_.all_gather(mine.data(), std::ssize(mine) * static_cast<int64_t>(sizeof(mine[0])), all.data());
  std::vector<RankSums::Places> places;
  for (int r = 0; r < comm_.node_size(); ++r) {
    const auto begin = all.begin() + (comm_.node() * comm_.node_size() + r) * std::ssize(mine);
    places.emplace_back(begin, begin + std::ssize(mine));
  }
  over_ranks_.set_places(std::move(places));
}

void SharedStep::book_totals() {
  const ParamStore& store = executor_.store();
  totals_.resize(store.parameters().count());
  int64_t most_rows = 0;
  for (const GradientUse& use : executor_.plan().gradients)
    most_rows = std::max(most_rows, store.parameters().at(use.parameter).rows());
  every_row_.resize(static_cast<size_t>(most_rows));
  std::iota(every_row_.begin(), every_row_.end(), 1);
  for (size_t u = 0; u < executor_.plan().gradients.size(); ++u) {
    const GradientUse& use = executor_.plan().gradients[u];
    auto& totals = totals_[use.parameter];
    if (std::ssize(totals) <= use.use) totals.resize(use.use + 1);
    const auto by_rows = [&](int r) { return over_ranks_.place(r, static_cast<int>(u)).by_rows != 0; };
    bool any = false;
    for (int r = 0; r < comm_.node_size(); ++r) any = any || by_rows(r);
    if (!any) continue;
    const Parameter& p = store.parameters().at(use.parameter);
    std::vector<RowGradient> leaves;
    for (int r = 0; r < comm_.node_size(); ++r) {
      RowGradient leaf = GradientSums::rows_at(p, gradients_.plane(r), over_ranks_.place(r, static_cast<int>(u)));
      if (!by_rows(r)) {  // a whole table: every row is in place
        leaf.ids = nullptr;
        leaf.place = every_row_.data();
        leaf.values = over_ranks_.first(r, static_cast<int>(u));
      }
      leaves.push_back(leaf);
    }
    totals[use.use] = std::make_unique<RowTotal>(std::move(leaves));
  }
}

void SharedStep::enter(dist::Phase phase, int64_t step) {
  comm_.set_phase(phase, step);
  if (narrow_) over_ranks_.set_wire({.narrow = true, .offset = cut_offset(step)});
}

const RowTotal* SharedStep::rows(int i, int use) const { return totals_[i][use].get(); }

std::atomic<uint64_t>& SharedStep::finished_by(int rank, size_t bucket) const {
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  return reinterpret_cast<std::atomic<uint64_t>*>(flags_->part(rank))[bucket];
}

bool SharedStep::all_finished(size_t bucket) const {
  for (int r = 0; r < comm_.node_size(); ++r)
    if (finished_by(r, bucket).load(std::memory_order_acquire) < step_) return false;
  return true;
}

void SharedStep::finished(const GradientUse&) {
  const auto& buckets = ownership_.buckets();
  ++handed_in_;
  while (finished_here_ < buckets.size() && buckets[finished_here_].end <= handed_in_)
    finished_by(comm_.node_rank(), finished_here_++).store(step_, std::memory_order_release);
  while (summed_ < finished_here_ && all_finished(summed_)) sum_bucket(summed_++);
}

void SharedStep::finish_gradients(bool dropped) {
  settle();  // parameters that this step has not read
  const auto& buckets = ownership_.buckets();
  if (dropped)  // let no rank wait: all hand in their gradients, and the exchange ends the step
    for (size_t b = finished_here_; b < buckets.size(); ++b)
      finished_by(comm_.node_rank(), b).store(step_, std::memory_order_release);
  for (; summed_ < buckets.size(); ++summed_) {
    if (!dropped) comm_.wait([&] { return all_finished(summed_); });
    if (!dropped) sum_bucket(summed_);
    else over_ranks_.by_messages(buckets[summed_], by_messages_);
  }
  for (const auto& sum : by_messages_) comm_.wait([&] { return sum->done(); });
  by_messages_.clear();
}

void SharedStep::sum_bucket(size_t bucket) {
  const GradientBucket& b = ownership_.buckets()[bucket];
  for (int u = b.begin; u < b.end; ++u)
    if (over_ranks_.deals(executor_.plan().gradients[u].parameter)) add_ranks(u);
  // Rows are added when they are read.
  over_ranks_.inside_node(b, [this](const GradientUse& use) { return rows(use.parameter, use.use) != nullptr; });
  over_ranks_.by_messages(b, by_messages_);
}

// Add the sums of the group's ranks in the order of the tree, if each rank has kept its sum over its shards.
void SharedStep::add_ranks(int use) {
  const int64_t stride = executor_.gradients().rank_stride(executor_.plan().gradients[use].parameter);
  if (stride == 0) return;
  float* first = over_ranks_.first(comm_.node_rank(), use);
  const float* sums[kMaxShards];
  const int ranks = executor_.store().experts()->ranks();
  for (int r = 0; r < ranks; ++r) sums[r] = first + r * stride;
  sum_planes({sums, static_cast<size_t>(ranks)}, first, stride);
}

void SharedStep::exchange(StepTotals& totals) {
  exchange_.run(totals, false);
  ++step_;
  handed_in_ = 0;
  finished_here_ = summed_ = 0;
}

bool SharedStep::stops(bool asked) { return batch_sums_ ? exchange_.any(asked) : asked; }

void SharedStep::add(std::span<double> values) { exchange_.add(values); }

}  // namespace mudd
