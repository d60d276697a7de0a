// Joining: the first messages of a job. Rank 0 compares the start parameters of the ranks. If ranks differ, or
// do not arrive within the limit, the job exits before the first collective call, which would wait without end.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "mudd/dist/transport.h"

namespace mudd::dist {

class Joining {
 public:
  // facts: lines "name=value" that must be equal on all ranks. seconds: limit for the slowest rank.
  Joining(Transport& transport, const RankPlace& place, const std::string& facts, double seconds);
  // Return true once all ranks agree; call it until then. On a failure rank 0 throws std::runtime_error with a
  // message for the user, and the other ranks throw PeerError.
  bool advance();

 private:
  using Clock = std::chrono::steady_clock;
  using Bytes = std::vector<char>;
  struct Message {
    Transport::Request request;
    bool done = false;
  };

  bool ask();
  bool judge();
  bool received(Message& message) const;
  std::string verdict() const;
  bool late(double grace) const;

  Transport& transport_;
  const RankPlace& place_;
  const double seconds_;
  const Clock::time_point began_ = Clock::now();
  std::vector<Bytes> buffers_;     // of every rank; of the answer on ranks above 0
  Bytes mine_;                     // host and facts; on rank 0, later the result
  std::vector<Message> received_;  // by rank; of the answer on ranks above 0
  std::vector<Message> sent_;
  bool answered_ = false;  // by rank 0
};

}  // namespace mudd::dist
