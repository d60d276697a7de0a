// CommTimer: times the messages of a training run on these ranks, for commbench.
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
  // largest: bytes of the largest buffer of a host. All ranks construct it together.
  CommTimer(Comm& comm, int64_t largest);

  // Return the median seconds of this rank over `repeats`, after one warm-up. All ranks make the same call.
  // `what`:
  //   message     one way of `bytes` between the first rank and the first of the last host (or the last rank)
  //   all_gather  bytes / world of each rank to all
  //   node_sum    buffers of `bytes` of the ranks of a host, each rank its part
  //   sum         a buffer of `bytes` over hosts, each rank of a host its part
  //   gather      the same buffer back
  double seconds(const std::string& what, int64_t bytes, int repeats);

 private:
  void message(int64_t bytes);
  void all_gather(int64_t bytes);
  void node_sum(int64_t bytes);
  std::vector<OwnedRange> pieces(int64_t bytes) const;

  Comm& comm_;
  int64_t largest_;
  std::shared_ptr<Window> window_;  // a buffer of each rank
  std::vector<std::byte> gathered_;
};

}  // namespace mudd::dist
