#include "mudd/train/cut_step.h"

#include <array>

#include "mudd/base/shard_tree.h"
#include "mudd/kernels/reduce/reduce.h"
#include "mudd/train/cut_weights.h"

namespace mudd {

CutStep::CutStep(Executor& executor, GradientSums& sums, NodeGradients& gradients)
    : GradientSync(executor),
      sums_(sums),
      gradients_(gradients),
      comm_(gradients.comm()),
      cut_(*executor.store().cut()),
      experts_(executor, comm_, cut_.experts),
      exchange_(executor, comm_, [this](int i, int rank) {
        if (experts_.deals(i)) return experts_.part(i, rank);
        return cut_.slices.part(i, owner_of(comm_, rank / comm_.node_size(), rank % comm_.node_size()));
      }) {
  check(sums.cut() && cut_.slices.owners() == comm_.world(), "train_step",
        "gradients: expected those of an executor that cuts them over ", comm_.world(), " ranks");
  progress_ = comm_.window(std::ssize(sums.buckets()) * static_cast<int64_t>(sizeof(Progress)));
  by_messages_.resize(sums.buckets().size());
  summed_ = finished_ = sums.buckets().size();
}

// The buckets of the run before are taken in first: their memory is written from now on.
void CutStep::begins(int run) {
  finish_gradients(false);
  run_ = run;
  ++count_;
  written_uses_ = 0;
  written_ = summed_ = finished_ = 0;
}

void CutStep::reaches(int position) {
  const auto& buckets = sums_.buckets();
  while (finished_ < buckets.size() && buckets[finished_].last < position) finish(finished_++);
}

void CutStep::finished(const GradientUse&) {
  const auto& buckets = sums_.buckets();
  ++written_uses_;
  for (; written_ < buckets.size() && buckets[written_].end <= written_uses_; ++written_)
    progress(comm_.node_rank(), written_).written.store(count_, std::memory_order_release);
  sum_written();
}

bool CutStep::all(size_t bucket, std::atomic<uint64_t> Progress::* count) const {
  for (int r = 0; r < comm_.node_size(); ++r)
    if ((progress(r, bucket).*count).load(std::memory_order_acquire) < count_) return false;
  return true;
}

void CutStep::sum_written() {
  while (summed_ < written_ && all(summed_, &Progress::written)) sum(summed_++);
}

// Nobody may wait in a message of all ranks for one that waits for its sums.
void CutStep::sum_run(std::span<double> values) {
  while (summed_ < sums_.buckets().size()) {
    comm_.wait([&] { return all(summed_, &Progress::written); });
    sum(summed_++);
  }
  exchange_.add(values);
}

float* CutStep::plane(int node_rank, const GradientUse& use) const {
  return reinterpret_cast<float*>(gradients_.plane(node_rank) + sums_.place(use.parameter, use.use).offset);
}

// What this rank sums inside its node: its own part and those of the ranks of its number in other nodes.
void CutStep::sum_inside_node(size_t bucket) {
  const int first = owner_of(comm_, 0, comm_.node_rank());
  for (int u = sums_.buckets()[bucket].begin; u < sums_.buckets()[bucket].end; ++u) {
    const GradientUse& use = executor_.plan().gradients[u];
    if (experts_.deals(use.parameter)) continue;
    const int64_t begin = cut_.slices.part(use.parameter, first).begin;
    const int64_t end = cut_.slices.part(use.parameter, first + comm_.nodes() - 1).end;
    if (begin == end) continue;
    std::array<const float*, kMaxShards> planes;
    for (int r = 0; r < comm_.node_size(); ++r) planes[r] = plane(r, use) + begin;
    sum_planes({planes.data(), static_cast<size_t>(comm_.node_size())}, plane(comm_.node_rank(), use) + begin,
               end - begin);
  }
}

void CutStep::sum(size_t bucket) {
  if (comm_.node_size() > 1) sum_inside_node(bucket);
  progress(comm_.node_rank(), bucket).read.store(count_, std::memory_order_release);
  if (comm_.nodes() > 1) sum_between_nodes(bucket);
  sum_experts(bucket);
}

void CutStep::sum_experts(size_t bucket) {
  auto* base = reinterpret_cast<float*>(gradients_.plane(comm_.node_rank()));
  std::vector<HeldExperts::Gradient> stacks;
  for (int u = sums_.buckets()[bucket].begin; u < sums_.buckets()[bucket].end; ++u) {
    const GradientUse& use = executor_.plan().gradients[u];
    if (experts_.deals(use.parameter)) stacks.push_back({use.parameter, plane(comm_.node_rank(), use) - base});
  }
  if (auto sum = experts_.sum(base, stacks)) by_messages_[bucket].push_back(std::move(sum));
}

// Whether a step gives only some of the rows of its gradient.
bool CutStep::is_table(const GradientUse& use) const {
  const Plan& plan = executor_.plan();
  return executor_.graph().nodes()[plan.schedule[use.position].node].node->gradient_rows(use.input) > 0;
}

// Of tables only rows that some sample has read are sent.
void CutStep::sum_between_nodes(size_t bucket) {
  auto* base = reinterpret_cast<float*>(gradients_.plane(comm_.node_rank()));
  std::vector<dist::OwnedRange> pieces, rows;
  for (int u = sums_.buckets()[bucket].begin; u < sums_.buckets()[bucket].end; ++u) {
    const GradientUse& use = executor_.plan().gradients[u];
    if (experts_.deals(use.parameter)) continue;
    const bool table = is_table(use);
    rows.clear();
    for (int node = 0; node < comm_.nodes(); ++node) {
      const Part p = cut_.slices.part(use.parameter, owner_of(comm_, node, comm_.node_rank()));
      (table ? rows : pieces)
          .push_back(
              {.offset = plane(comm_.node_rank(), use) - base + p.begin, .length = p.size(), .owner = node});
    }
    if (table)
      by_messages_[bucket].push_back(
          comm_.sum_between_nodes(base, rows, executor_.store().parameters().at(use.parameter).cols()));
  }
  by_messages_[bucket].push_back(comm_.sum_between_nodes(base, pieces));
}

// Takes the sum of a bucket; then all of its memory is free, here and where others read from it.
void CutStep::finish(size_t bucket) {
  while (summed_ <= bucket) {
    comm_.wait([&] { return all(summed_, &Progress::written); });
    sum(summed_++);
  }
  for (const auto& sum : by_messages_[bucket]) comm_.wait([&] { return sum->done(); });
  by_messages_[bucket].clear();
  for (int u = sums_.buckets()[bucket].begin; u < sums_.buckets()[bucket].end; ++u) {
    const GradientUse& use = executor_.plan().gradients[u];
    if (cut_.own(use.parameter).size() > 0) sums_.take(use.parameter, use.use, run_);
  }
  comm_.wait([&] { return all(bucket, &Progress::read); });
}

// A dropped step ends before a run, on all ranks: what was written is summed.
void CutStep::finish_gradients(bool) {
  while (finished_ < sums_.buckets().size()) finish(finished_++);
}

// An owner's slice is read by others only in the gathers of later runs, or where it was written.
bool CutStep::finish_update(bool finite) {
  executor_.store().packs().masters_written();
  const bool all_finite = !exchange_.any(!finite);
  experts_.send_weights();
  return all_finite;
}

}  // namespace mudd
