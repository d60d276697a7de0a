// StoreMemory: the memory of a store's weights and packed copies, in this process or shared by its host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "mudd/base/arena.h"

namespace mudd {

// The processes of a host that share one copy of the weights. All of them make the same calls in the same
// order.
struct NodeShare {
  int rank = 0, size = 1;
  // Returns the same zeroed, cache-line aligned memory in all processes; it lives as long as the store.
  std::function<std::byte*(int64_t bytes)> memory = {};
  std::function<void()> barrier = {};
};

// Zeroed memory of this process (`own` has it) or of the host.
struct StoreBlock {
  Arena own;
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

class StoreMemory {
 public:
  // booked_only: addresses only, so that models of any size can be planned; they must not be read, written or
  // run.
  void settle(bool booked_only, NodeShare share) {
    booked_only_ = booked_only;
    share_ = std::move(share);
  }
  bool booked_only() const { return booked_only_; }
  const NodeShare& share() const { return share_; }
  bool shared() const { return share_.size > 1; }

  // shared: in shared memory, if the processes of the host share the weights.
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
