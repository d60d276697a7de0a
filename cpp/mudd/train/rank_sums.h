// RankSums: the sums of gradients over the ranks of a run, one bucket at a time. Inside a host one rank sums
// each part of a gradient, from the buffers of all ranks by the tree of contracts 2, into its own buffer.
// Between hosts, ranks with the same index continue the tree by messages. Ranks with the same sharded experts
// sum their gradients. CutStep and SharedStep decide when a bucket is summed.
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
  using Places = std::vector<GradientSums::TotalPlace>;          // of each use of the plan, in one buffer
  using Messages = std::vector<std::shared_ptr<dist::Pending>>;  // sums in progress
  using Skips = std::function<bool(const GradientUse&)>;

  // slices: every rank owns one part. The referenced objects must outlive the RankSums.
  RankSums(const Executor& executor, NodeGradients& gradients, const Slices& slices, ExpertParts experts);
  // Set the form of the gradients in the messages between hosts from here on.
  void set_wire(const dist::Wire& wire) { wire_ = wire; }
  // Set the places in the buffer of each rank of the host.
  void set_places(std::vector<Places> places) { places_ = std::move(places); }
  // Return the places in this rank's buffer.
  Places own_places() const;

  HeldExperts& experts() { return experts_; }
  bool deals(int parameter) const { return experts_.deals(parameter); }
  // Return the part of a parameter that a rank sums and updates.
  Part part(int parameter, int rank) const;
  GradientSums::TotalPlace place(int node_rank, int use) const { return places_[node_rank][use]; }
  // Return element 0 of a use of the plan, in the buffer of a rank of the host.
  float* first(int node_rank, int use) const {
    return reinterpret_cast<float*>(gradients_.plane(node_rank) + places_[node_rank][use].offset);
  }

  // Sum this rank's parts of a bucket and the parts of the ranks with its index on other hosts, from the
  // buffers of its host. All ranks of the host must have written the bucket. skips: uses that are summed in
  // another way.
  void inside_node(const GradientBucket& bucket, const Skips& skips = {}) const;
  // Start the sums of a bucket that need messages, and append them.
  void by_messages(const GradientBucket& bucket, Messages& under_way);

 private:
  Part part_of_nodes(int parameter) const;
  bool is_table(const GradientUse& use) const;
  float* own_plane() const { return reinterpret_cast<float*>(gradients_.plane(comm_.node_rank())); }
  // Return the first element of a use in this rank's buffer.
  int64_t own_element(int use) const { return first(comm_.node_rank(), use) - own_plane(); }
  void between_nodes(const GradientBucket& bucket, Messages& under_way) const;
  void of_experts(const GradientBucket& bucket, Messages& under_way);

  const Executor& executor_;
  NodeGradients& gradients_;
  dist::Comm& comm_;
  const Slices& slices_;
  HeldExperts experts_;
  std::vector<Places> places_;  // [rank of the host]
  dist::Wire wire_;
};

}  // namespace mudd
