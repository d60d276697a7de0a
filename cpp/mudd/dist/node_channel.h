// NodeChannel: barrier, all_gather and broadcast between the ranks of a host, over the areas of its status.
//
// Operation k uses area k % 2: when a rank has seen all others arrive at k - 1, all of them have read the data of
// k - 2. So one counter per rank is enough, and no rank waits twice.
#pragma once

#include <cstdint>

#include "mudd/dist/comm.h"
#include "mudd/dist/node_status.h"

namespace mudd::dist {

class NodeChannel {
 public:
  NodeChannel(NodeStatus& status, Comm& comm) : status_(status), comm_(comm) {}

  // Each returns when all ranks of the host have made the call. StateError that names both calls if two differ.
  void meet(const Call& call);
  // out [ranks of the host * bytes].
  void all_gather(const Call& call, const void* mine, int64_t bytes, std::byte* out);
  void broadcast(const Call& call, void* data, int64_t bytes, int node_root);

 private:
  uint64_t next() const { return passed_ + 1; }

  NodeStatus& status_;
  Comm& comm_;
  uint64_t passed_ = 0;
};

}  // namespace mudd::dist
