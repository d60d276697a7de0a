// StoreMemory: where the weights and packed copies of a store lie, in this process or in memory of its node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "mudd/base/arena.h"

namespace mudd {

// The processes of a node that read one copy of the weights. All of them make the same calls in the same order.
struct NodeShare {
  int rank = 0, size = 1;
  // The same zeroed memory for all of them, on a cache line; it lives as long as the store.
  std::function<std::byte*(int64_t bytes)> memory = {};
  std::function<void()> barrier = {};
};

// Zeroed memory of this process (`own` holds it) or of the node.
struct StoreBlock {
  Arena own;
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

class StoreMemory {
 public:
  // booked_only: only addresses, so that models of any size can be planned; nothing may be read, written or run.
  void settle(bool booked_only, NodeShare share) {
    booked_only_ = booked_only;
    share_ = std::move(share);
  }
  bool booked_only() const { return booked_only_; }
  const NodeShare& share() const { return share_; }
  bool shared() const { return share_.size > 1; }

  // shared: of the node, where its processes share the weights.
  StoreBlock take(int64_t bytes, bool shared) const {
    StoreBlock block;
    block.bytes = bytes;
    if (shared && share_.size > 1 && !booked_only_) {
      block.data = share_.memory(bytes);
    } else {
      block.own = Arena(bytes, booked_only_);
      block.data = block.own.data();
    }
    return block;
  }

 private:
  NodeShare share_;
  bool booked_only_ = false;
};

}  // namespace mudd
