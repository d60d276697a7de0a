// Senders: what this rank knows of ranks of other nodes, by their messages alone: a stopped rank sends none, and
// nobody can ask it. For the report of the watchdog.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "mudd/dist/comm.h"

namespace mudd::dist {

class Senders {
 public:
  explicit Senders(int world) : ranks_(static_cast<size_t>(world)) {}

  int ranks() const { return static_cast<int>(ranks_.size()); }
  void await(int rank) { ranks_[rank].awaited.fetch_add(1, std::memory_order_relaxed); }
  // phase: in which ranks send such messages; step: of the receiver.
  void heard(int rank, Phase phase, int64_t step) {
    Sender& sender = ranks_[rank];
    sender.awaited.fetch_sub(1, std::memory_order_relaxed);
    sender.step.store(step, std::memory_order_relaxed);
    sender.phase.store(static_cast<int32_t>(phase), std::memory_order_relaxed);
  }
  // The first rank whose message has not come; -1: none.
  int awaited() const;
  // A line for each rank that has sent or is awaited, "" for the others.
  std::string where(int rank) const;

 private:
  struct Sender {
    std::atomic<int32_t> awaited{0};  // messages
    std::atomic<int32_t> phase{-1};   // of its last message; -1: none has come
    std::atomic<int64_t> step{0};
  };

  std::vector<Sender> ranks_;
};

}  // namespace mudd::dist
