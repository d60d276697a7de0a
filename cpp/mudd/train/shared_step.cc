#include "mudd/train/shared_step.h"

#include <algorithm>
#include <numeric>

#include "mudd/base/shard_tree.h"
#include "mudd/kernels/reduce/reduce.h"

namespace mudd {

SharedStep::SharedStep(const Executor& executor, NodeGradients& gradients, bool batch_sums,
                       const std::function<bool(const Parameter&)>& whole)
    : GradientSync(executor),
      gradients_(gradients),
      comm_(gradients.comm()),
      batch_sums_(batch_sums || (executor.store().experts() && executor.store().experts()->ranks() > 1)),
      ownership_(executor.store().parameters(), executor.plan(), comm_.world(), whole, gradients.bucket_bytes()),
      experts_(executor, comm_, ExpertParts(executor.store().parameters(), executor.store().experts(), whole)),
      exchange_(executor, comm_, [this](int i, int rank) { return part_of(i, rank); }) {
  read_places();
  book_totals();
  flags_ = comm_.window(std::ssize(ownership_.buckets()) * static_cast<int64_t>(sizeof(uint64_t)));
  arrived_ = comm_.window(std::ssize(ownership_.buckets()) * static_cast<int64_t>(sizeof(uint64_t)));
  homes_.resize(ownership_.buckets().size());
  on_their_way_.resize(homes_.size());
  for (int i = 0; i < executor.store().parameters().count(); ++i)
    if (ownership_.home(i) >= 0 && !experts_.deals(i)) homes_[ownership_.home(i)].push_back(i);
}

// Tells all processes where the totals lie: their planes differ where one has few rows of a table and another
// many.
void SharedStep::read_places() {
  std::vector<GradientSums::TotalPlace> mine;
  for (const GradientUse& u : executor_.plan().gradients)
    mine.push_back(executor_.gradients().place(u.parameter, u.use));
  std::vector<GradientSums::TotalPlace> all(mine.size() * static_cast<size_t>(comm_.world()));
  comm_.all_gather(mine.data(), std::ssize(mine) * static_cast<int64_t>(sizeof(mine[0])), all.data());
  for (int r = 0; r < comm_.node_size(); ++r) {
    const auto begin = all.begin() + (comm_.node() * comm_.node_size() + r) * std::ssize(mine);
    places_.emplace_back(begin, begin + std::ssize(mine));
  }
}

void SharedStep::book_totals() {
  const ParamStore& store = executor_.store();
  totals_.resize(store.parameters().count());
  int64_t most_rows = 0;
  for (const GradientUse& use : executor_.plan().gradients)
    most_rows = std::max(most_rows, store.parameters().at(use.parameter).rows());
  every_row_.resize(static_cast<size_t>(most_rows));
  std::iota(every_row_.begin(), every_row_.end(), 0);
  for (size_t u = 0; u < executor_.plan().gradients.size(); ++u) {
    const GradientUse& use = executor_.plan().gradients[u];
    auto& totals = totals_[use.parameter];
    if (std::ssize(totals) <= use.use) totals.resize(use.use + 1);
    const bool by_rows =
        std::any_of(places_.begin(), places_.end(), [&](const auto& places) { return places[u].by_rows; });
    if (!by_rows) continue;
    const Parameter& p = store.parameters().at(use.parameter);
    std::vector<RowGradient> leaves;
    for (int r = 0; r < comm_.node_size(); ++r) {
      RowGradient leaf = GradientSums::rows_at(p, gradients_.plane(r), places_[r][u]);
      if (!places_[r][u].by_rows) {  // a whole table: every row is in its place
        leaf.place = every_row_.data();
        leaf.values = reinterpret_cast<float*>(gradients_.plane(r) + places_[r][u].offset);
      }
      leaves.push_back(leaf);
    }
    totals[use.use] = std::make_unique<RowTotal>(std::move(leaves));
  }
}

// What this rank sums inside its node: its own part and those of the ranks of its number in other nodes.
Part SharedStep::part_of_nodes(int i) const {
  const int first = owner(0, comm_.node_rank());
  return {i, ownership_.part(i, first).begin, ownership_.part(i, first + comm_.nodes() - 1).end};
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
  if (dropped)  // nobody shall wait: all hand in what they have, and the exchange ends the step
    for (size_t b = finished_here_; b < buckets.size(); ++b)
      finished_by(comm_.node_rank(), b).store(step_, std::memory_order_release);
  for (; summed_ < buckets.size(); ++summed_) {
    if (!dropped) comm_.wait([&] { return all_finished(summed_); });
    if (!dropped) sum_bucket(summed_);
    else sum_others(buckets[summed_]);
  }
  for (const auto& sum : between_nodes_) comm_.wait([&] { return sum->done(); });
  between_nodes_.clear();
}

void SharedStep::sum_bucket(size_t bucket) {
  const GradientBucket& b = ownership_.buckets()[bucket];
  for (int u = b.begin; u < b.end; ++u) {
    const GradientUse& use = executor_.plan().gradients[u];
    if (experts_.deals(use.parameter)) {
      add_ranks(use);
      continue;
    }
    const Part mine = part_of_nodes(use.parameter);
    if (mine.size() == 0 || rows(use.parameter, use.use)) continue;  // rows are added when they are read
    const float* planes[kMaxShards];
    for (int r = 0; r < comm_.node_size(); ++r)
      planes[r] = reinterpret_cast<const float*>(gradients_.plane(r) + places_[r][u].offset) + mine.begin;
    float* to =
        reinterpret_cast<float*>(gradients_.plane(comm_.node_rank()) + places_[comm_.node_rank()][u].offset);
    sum_planes({planes, static_cast<size_t>(comm_.node_size())}, to + mine.begin, mine.size());
  }
  sum_others(b);
}

// Adds the sums over the shards of each rank of the group by the tree, where they stayed apart.
void SharedStep::add_ranks(const GradientUse& use) {
  const int64_t stride = executor_.gradients().rank_stride(use.parameter);
  if (stride == 0) return;
  auto* first = reinterpret_cast<float*>(gradients_.plane(comm_.node_rank()) +
                                         executor_.gradients().place(use.parameter, use.use).offset);
  const float* sums[kMaxShards];
  const int ranks = executor_.store().experts()->ranks();
  for (int r = 0; r < ranks; ++r) sums[r] = first + r * stride;
  sum_planes({sums, static_cast<size_t>(ranks)}, first, stride);
}

void SharedStep::sum_experts(const GradientBucket& bucket) {
  std::vector<HeldExperts::Gradient> stacks;
  for (int u = bucket.begin; u < bucket.end; ++u) {
    const int i = executor_.plan().gradients[u].parameter;
    if (experts_.deals(i)) stacks.push_back({i, places_[comm_.node_rank()][u].offset / 4});
  }
  if (auto sum = experts_.sum(reinterpret_cast<float*>(gradients_.plane(comm_.node_rank())), stacks))
    between_nodes_.push_back(std::move(sum));
}

// Begins the sums that go by messages.
void SharedStep::sum_others(const GradientBucket& bucket) {
  if (comm_.nodes() > 1) sum_between_nodes(bucket);
  sum_experts(bucket);
}

// Whether a step gives only some of the rows of its gradient.
bool SharedStep::is_table(const GradientUse& use) const {
  const Plan& plan = executor_.plan();
  return executor_.graph().nodes()[plan.schedule[use.position].node].node->gradient_rows(use.input) > 0;
}

// Of tables only rows that some sample has read are sent.
void SharedStep::sum_between_nodes(const GradientBucket& bucket) {
  auto* plane = reinterpret_cast<float*>(gradients_.plane(comm_.node_rank()));
  std::vector<dist::OwnedRange> pieces, rows;
  for (int u = bucket.begin; u < bucket.end; ++u) {
    const GradientUse& use = executor_.plan().gradients[u];
    if (experts_.deals(use.parameter)) continue;
    const GradientSums::TotalPlace& place = places_[comm_.node_rank()][u];
    check(!place.by_rows, "train_step", "several nodes need gradients of whole tables (gradient_rows)");
    const bool table = is_table(use);
    rows.clear();
    for (int node = 0; node < comm_.nodes(); ++node) {
      const Part p = ownership_.part(use.parameter, owner(node, comm_.node_rank()));
      (table ? rows : pieces).push_back({.offset = place.offset / 4 + p.begin, .length = p.size(), .owner = node});
    }
    if (table)
      between_nodes_.push_back(
          comm_.sum_between_nodes(plane, rows, executor_.store().parameters().at(use.parameter).cols()));
  }
  between_nodes_.push_back(comm_.sum_between_nodes(plane, pieces));
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
