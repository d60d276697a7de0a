// CutStep: the GradientSync of ranks that shard gradients and state, and on several hosts the weights
// (mesh.zero=3). In each graph run a bucket is summed as soon as all ranks have finished it: inside a host from
// the buffers of its ranks, between hosts by messages. Its owner keeps the sum over runs of its slice, and a
// later bucket reuses the memory. The ranks with the same sharded experts sum their gradients.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "mudd/train/gradient_sync.h"
#include "mudd/train/rank_sums.h"
#include "mudd/train/totals_exchange.h"

namespace mudd {

class CutStep final : public GradientSync, private BatchSum {
 public:
  // All processes construct it together. The executor's store is sharded across all ranks, and so are its
  // gradients.
  CutStep(Executor& executor, GradientSums& sums, NodeGradients& gradients);

  Part part(int i) const override { return cut_.own(i); }
  int ranks() const override { return comm_.world(); }
  const RowTotal* rows(int, int) const override { return nullptr; }
  void enter(dist::Phase phase, int64_t step) override { comm_.set_phase(phase, step); }
  // Graphs exchange messages, so ranks agree on a stop before each run.
  bool stops(bool asked) override { return exchange_.any(asked); }
  void sum_run(std::span<double> values) override;
  BatchSum* batch_sum() override { return this; }
  void begins(int run) override;
  void reaches(int position) override;
  void finished(const GradientUse& use) override;
  void finish_gradients(bool dropped) override;
  void exchange(StepTotals& totals) override { exchange_.run(totals, true); }
  bool finish_update(bool finite) override;
  double waited_seconds() const override { return comm_.waited_seconds(); }
  double hidden_seconds() const override { return comm_.hidden_seconds(); }

 private:
  // The progress of a bucket, as the index of the last graph run in which a rank wrote it, and read it from all
  // buffers of the host.
  struct Progress {
    std::atomic<uint64_t> written, read;
  };

  void add(std::span<double> values) override { exchange_.add(values); }
  Progress& progress(int node_rank, size_t bucket) const {
    return reinterpret_cast<Progress*>(progress_->part(node_rank))[bucket];
  }
  bool all(size_t bucket, std::atomic<uint64_t> Progress::* count) const;
  void sum_written();
  void sum(size_t bucket);
  void finish(size_t bucket);

  GradientSums& sums_;
  dist::Comm& comm_;
  const OwnSlices& cut_;
  RankSums over_ranks_;
  TotalsExchange exchange_;
  std::shared_ptr<dist::Window> progress_;
  std::vector<RankSums::Messages> by_messages_;     // of each bucket
  int run_ = 0;                                     // in the step
  uint64_t count_ = 0;                              // of graph runs so far
  int written_uses_ = 0;                            // in this run
  size_t written_ = 0, summed_ = 0, finished_ = 0;  // buckets in this run: written here, being summed, taken
};

}  // namespace mudd
