// CutWeights: the WeightSource for weights that are sharded across ranks on several hosts. It gathers the weights
// of a graph into the host's shared memory while the ranks compute: each rank copies its slice there and receives
// the slices of the ranks with the same index on other hosts.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "mudd/dist/comm.h"
#include "mudd/params/param_store.h"
#include "mudd/train/ownership.h"

namespace mudd {

class CutWeights final : public WeightSource {
 public:
  // The store is sharded across all ranks and has the slices of this one; both must outlive it. All ranks
  // construct it together.
  CutWeights(ParamStore& store, dist::Comm& comm);
  ~CutWeights() override { store_.set_source(nullptr); }
  CutWeights(const CutWeights&) = delete;
  CutWeights& operator=(const CutWeights&) = delete;

  std::byte* memory(int64_t bytes) override;
  void post(std::span<const Wanted> wanted, std::byte* to) override;
  void await() override;

 private:
  // The progress of a rank of the host: its calls of post(), and the gathers that have delivered its part.
  struct Progress {
    alignas(64) std::atomic<uint64_t> posted, arrived;
  };
  Progress& progress(int node_rank) const { return *reinterpret_cast<Progress*>(progress_->part(node_rank)); }
  void wait_for_node(std::atomic<uint64_t> Progress::* count, uint64_t at_least);
  void copy_own(const Wanted& wanted, std::byte* to) const;

  ParamStore& store_;
  dist::Comm& comm_;
  std::shared_ptr<dist::Window> progress_;
  // For graphs of which one runs at a time: the last window is the largest, and serves new graphs that need
  // less.
  std::vector<std::shared_ptr<dist::Window>> windows_;
  int64_t largest_ = 0;
  std::deque<std::shared_ptr<dist::Pending>> on_their_way_;
};

}  // namespace mudd
