// NodeMemory: memory that the ranks of a host share, allocated piece by piece from windows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "mudd/base/arena.h"
#include "mudd/dist/comm.h"

namespace mudd::dist {

class NodeMemory {
 public:
  explicit NodeMemory(Comm& comm) : comm_(comm) {}

  // Return zeroed, cache-line aligned memory. All ranks of the host allocate the same pieces in the same order.
  std::byte* take(int64_t bytes) {
    if (left_ < aligned(bytes)) {
      left_ = std::max(aligned(bytes), kWindowBytes);
      windows_.push_back(comm_.window(comm_.node_rank() == 0 ? left_ : 0));
      next_ = windows_.back()->part(0);
    }
    std::byte* piece = next_;
    next_ += aligned(bytes);
    left_ -= aligned(bytes);
    return piece;
  }
  Comm& comm() const { return comm_; }

 private:
  static constexpr int64_t kWindowBytes = 64 << 20;  // pages that no rank touches use no memory

  Comm& comm_;
  std::vector<std::shared_ptr<Window>> windows_;
  std::byte* next_ = nullptr;
  int64_t left_ = 0;
};

}  // namespace mudd::dist
