// CutWeights: the WeightSource of ranks on several nodes that hold slices of the weights. What a graph asks for
// comes into memory of the node: each rank copies its own slice there and gathers those of the ranks of its number
// in other nodes, while the ranks of the node compute.
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
  // The store is cut over all ranks and holds the slices of this one; both outlive it. All ranks construct it
  // together.
  CutWeights(ParamStore& store, dist::Comm& comm);
  ~CutWeights() override { store_.set_source(nullptr); }
  CutWeights(const CutWeights&) = delete;
  CutWeights& operator=(const CutWeights&) = delete;

  std::byte* memory(int64_t bytes) override;
  void post(std::span<const Wanted> wanted, std::byte* to) override;
  void await() override;

 private:
  // Of a rank of the node: how often it has called post, and how many gathers have brought its part.
  struct Progress {
    alignas(64) std::atomic<uint64_t> posted, arrived;
  };
  Progress& progress(int node_rank) const { return *reinterpret_cast<Progress*>(progress_->part(node_rank)); }
  void wait_for_node(std::atomic<uint64_t> Progress::* count, uint64_t at_least);
  void copy_own(const Wanted& wanted, std::byte* to) const;

  ParamStore& store_;
  dist::Comm& comm_;
  std::shared_ptr<dist::Window> progress_;
  // Of graphs, of which one runs at a time: the last window is the largest, and serves new ones that need less.
  std::vector<std::shared_ptr<dist::Window>> windows_;
  int64_t largest_ = 0;
  std::deque<std::shared_ptr<dist::Pending>> on_their_way_;
};

}  // namespace mudd
