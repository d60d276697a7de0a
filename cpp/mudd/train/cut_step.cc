#include "mudd/train/cut_step.h"

namespace mudd {

CutStep::CutStep(Executor& executor, GradientSums& sums, NodeGradients& gradients)
    : GradientSync(executor),
      sums_(sums),
      comm_(gradients.comm()),
      cut_(*executor.store().cut()),
      over_ranks_(executor, gradients, cut_.slices, cut_.experts),
      exchange_(executor, comm_, [this](int i, int rank) { return over_ranks_.part(i, rank); }) {
  check(sums.cut() && cut_.slices.owners() == comm_.world(), "train_step",
        "gradients: expected an executor that shards them across ", comm_.world(), " ranks");
  // Sharded buffers have the same places on all ranks.
  over_ranks_.set_places(
      std::vector<RankSums::Places>(static_cast<size_t>(comm_.node_size()), over_ranks_.own_places()));
  progress_ = comm_.window(std::ssize(sums.buckets()) * static_cast<int64_t>(sizeof(Progress)));
  by_messages_.resize(sums.buckets().size());
  summed_ = finished_ = sums.buckets().size();
}

// Receive the buckets of the previous run first, because their memory is written from now on.
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

// No rank may wait in a message of all ranks for a rank that waits for its sums.
void CutStep::sum_run(std::span<double> values) {
  while (summed_ < sums_.buckets().size()) {
    comm_.wait([&] { return all(summed_, &Progress::written); });
    sum(summed_++);
  }
  exchange_.add(values);
}

void CutStep::sum(size_t bucket) {
  over_ranks_.inside_node(sums_.buckets()[bucket]);
  progress(comm_.node_rank(), bucket).read.store(count_, std::memory_order_release);
  over_ranks_.by_messages(sums_.buckets()[bucket], by_messages_[bucket]);
}

// Receive the sum of a bucket. Afterwards all ranks have read the bucket, so its memory can be reused.
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

// A dropped step ends before a run, on all ranks: all written buckets are summed.
void CutStep::finish_gradients(bool) {
  while (finished_ < sums_.buckets().size()) finish(finished_++);
}

// Other ranks read an owner's slice only in the gathers of later runs, or on the host that wrote it.
bool CutStep::finish_update(bool finite) {
  executor_.store().packs().masters_written();
  const bool all_finite = !exchange_.any(!finite);
  over_ranks_.experts().send_weights();
  return all_finite;
}

}  // namespace mudd
