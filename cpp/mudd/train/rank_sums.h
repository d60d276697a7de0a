// RankSums: the sums of gradients over the ranks of a run, one bucket at a time. Inside a node each part of a
// gradient is summed by one rank, from the planes of all ranks by the tree of contracts 2, into that rank's plane.
// Between nodes, ranks of the same number continue the tree by messages. Gradients of divided experts are summed
// by the ranks that have the same experts. CutStep and SharedStep decide when a bucket is summed.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "mudd/train/held_experts.h"
#include "mudd/train/node_gradients.h"
#include "mudd/train/ownership.h"

namespace mudd {

class RankSums {
 public:
  using Places = std::vector<GradientSums::TotalPlace>;          // of each use of the plan, in one plane
  using Messages = std::vector<std::shared_ptr<dist::Pending>>;  // sums under way
  using Skips = std::function<bool(const GradientUse&)>;

  // slices: the owners are all ranks. The references outlive it.
  RankSums(const Executor& executor, NodeGradients& gradients, const Slices& slices, ExpertParts experts);
  // Sets the places in the plane of each rank of the node.
  void set_places(std::vector<Places> places) { places_ = std::move(places); }
  // The places in this rank's plane.
  Places own_places() const;

  HeldExperts& experts() { return experts_; }
  bool deals(int parameter) const { return experts_.deals(parameter); }
  // The part of a parameter that a rank sums and updates.
  Part part(int parameter, int rank) const;
  GradientSums::TotalPlace place(int node_rank, int use) const { return places_[node_rank][use]; }
  // Element 0 of a use of the plan, in the plane of a rank of the node.
  float* first(int node_rank, int use) const {
    return reinterpret_cast<float*>(gradients_.plane(node_rank) + places_[node_rank][use].offset);
  }

  // Sums this rank's parts of a bucket and the parts of the ranks of its number in other nodes, from the planes of
  // its node. All ranks of the node have written the bucket. skips: uses that are summed in another way.
  void inside_node(const GradientBucket& bucket, const Skips& skips = {}) const;
  // Starts the sums of a bucket that need messages, and appends them.
  void by_messages(const GradientBucket& bucket, Messages& under_way);

 private:
  Part part_of_nodes(int parameter) const;
  bool is_table(const GradientUse& use) const;
  float* own_plane() const { return reinterpret_cast<float*>(gradients_.plane(comm_.node_rank())); }
  // The first element of a use in this rank's plane.
  int64_t own_element(int use) const { return first(comm_.node_rank(), use) - own_plane(); }
  void between_nodes(const GradientBucket& bucket, Messages& under_way) const;
  void of_experts(const GradientBucket& bucket, Messages& under_way);

  const Executor& executor_;
  NodeGradients& gradients_;
  dist::Comm& comm_;
  const Slices& slices_;
  HeldExperts experts_;
  std::vector<Places> places_;  // [rank of the node]
};

}  // namespace mudd
