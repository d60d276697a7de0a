// SharedStep: the GradientSync of data parallel training. Every process backpropagates its shards into its own
// buffer. As soon as all ranks of a host have finished a bucket, one rank sums each part of it, from all
// buffers by the tree of contracts 2, into its own buffer, where only it uses that part. Between hosts, ranks
// with the same index then continue the tree, bucket by bucket, while backward continues, and exchange the new
// weights after the update. Ranks with the same sharded experts exchange their gradients and new weights.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "mudd/train/gradient_sync.h"
#include "mudd/train/rank_sums.h"
#include "mudd/train/totals_exchange.h"

namespace mudd {

class SharedStep final : public GradientSync, private BatchSum, private Arrival {
 public:
  // All processes construct it together. batch_sums: the graph adds over the batch, so ranks agree on stops
  // before every run. whole: see Ownership. narrow: hosts exchange gradients as bf16 (docs/maths/optimizers.md).
  SharedStep(const Executor& executor, NodeGradients& gradients, bool batch_sums,
             const std::function<bool(const Parameter&)>& whole, bool narrow = false);
  ~SharedStep() override { executor_.store().forget_arrival(this); }

  Part part(int i) const override { return over_ranks_.part(i, comm_.rank()); }
  int ranks() const override { return comm_.world(); }
  const RowTotal* rows(int i, int use) const override;
  void enter(dist::Phase phase, int64_t step) override;
  bool stops(bool asked) override;
  BatchSum* batch_sum() override { return this; }
  void finished(const GradientUse& use) override;
  void finish_gradients(bool dropped) override;
  void exchange(StepTotals& totals) override;
  bool finish_update(bool finite) override;
  double waited_seconds() const override { return comm_.waited_seconds(); }
  double hidden_seconds() const override { return comm_.hidden_seconds(); }
  void settle() override;

 private:
  void add(std::span<double> values) override;
  void await(int i) override;
  void read_places();
  void book_totals();
  void add_ranks(int use);
  bool all_finished(size_t bucket) const;
  void sum_bucket(size_t bucket);
  void send_weights();
  void receive_bucket(size_t bucket);
  std::atomic<uint64_t>& finished_by(int rank, size_t bucket) const;

  NodeGradients& gradients_;
  dist::Comm& comm_;
  bool batch_sums_, narrow_;
  Ownership ownership_;
  RankSums over_ranks_;
  TotalsExchange exchange_;
  // [parameter][use]; null if all processes have whole buffers.
  std::vector<std::vector<std::unique_ptr<RowTotal>>> totals_;
  std::vector<int32_t>
      every_row_;  // 0, 1, 2, ...: for a table that is whole in one process and a row list in another
  std::shared_ptr<dist::Window> flags_;                       // the step in which a rank finished a bucket
  RankSums::Messages by_messages_;                            // of all buckets
  std::vector<std::vector<int>> homes_;                       // parameters of each bucket, without sharded stacks
  std::vector<std::shared_ptr<dist::Pending>> on_their_way_;  // weights of each bucket
  size_t to_come_ = 0;                                        // buckets, the last first, in the order of forward
  std::shared_ptr<dist::Window> arrived_;                     // the update for which a rank has a bucket's weights
  uint64_t update_ = 0;
  uint64_t step_ = 1;
  int handed_in_ = 0;                      // uses that are final here
  size_t finished_here_ = 0, summed_ = 0;  // buckets
};

}  // namespace mudd
