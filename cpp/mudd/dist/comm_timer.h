// CommTimer: how long the messages of a training take on these ranks; what commbench prints.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mudd/dist/comm.h"

namespace mudd::dist {

class CommTimer {
 public:
  // largest: bytes of the largest plane of a node. All ranks make it together.
  CommTimer(Comm& comm, int64_t largest);

  // Median seconds of this rank over `repeats`, after one that does not count. All ranks call it alike. `what`:
  //   message     one way of `bytes` between the first rank and the first of the last node (or the last rank)
  //   all_gather  bytes / world of each rank to all
  //   node_sum    planes of `bytes` of the ranks of a node, each rank its part
  //   sum         a plane of `bytes` over nodes, each rank of a node its part
  //   gather      the same plane back
  double seconds(const std::string& what, int64_t bytes, int repeats);

 private:
  void message(int64_t bytes);
  void all_gather(int64_t bytes);
  void node_sum(int64_t bytes);
  std::vector<OwnedRange> pieces(int64_t bytes) const;

  Comm& comm_;
  int64_t largest_;
  std::shared_ptr<Window> window_;  // a plane of each rank
  std::vector<std::byte> gathered_;
};

}  // namespace mudd::dist
