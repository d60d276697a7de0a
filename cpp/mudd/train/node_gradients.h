// NodeGradients: the flat buffer in which an executor sums its gradients, in memory that the processes of its
// host can read. One for each executor.
#pragma once

#include <algorithm>
#include <memory>

#include "mudd/dist/comm.h"
#include "mudd/graph/gradient_sums.h"

namespace mudd {

class NodeGradients {
 public:
  explicit NodeGradients(dist::Comm& comm) : comm_(comm) {}
  NodeGradients(const NodeGradients&) = delete;  // memory() refers to it
  NodeGradients& operator=(const NodeGradients&) = delete;

  // For ExecutorOptions::gradient_memory. All processes of the host construct their executors together.
  GradientMemory memory() {
    return [this](int64_t bytes) {
      window_ = comm_.window(bytes);
      return window_->part(comm_.node_rank());
    };
  }
  dist::Comm& comm() const { return comm_; }
  // The size of a full gradient bucket: synchronization is cheap compared with its sum, and the last bucket of
  // backward is short.
  static constexpr int64_t kBucketBytes = 4 << 20;
  int64_t bucket_bytes() const { return std::min(kBucketBytes, comm_.longest_message()); }
  // Return the buffer of a process of the host.
  std::byte* plane(int node_rank) const { return window_->part(node_rank); }

 private:
  dist::Comm& comm_;
  std::shared_ptr<dist::Window> window_;
};

}  // namespace mudd
