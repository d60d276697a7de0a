// Partners: the state of ranks on other hosts, as far as messages show it: a stopped rank sends and receives
// none, and answers no request. For the report of the watchdog.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "mudd/dist/comm.h"

namespace mudd::dist {

class Partners {
 public:
  explicit Partners(int world) : ranks_(static_cast<size_t>(world)) {}

  int ranks() const { return static_cast<int>(ranks_.size()); }
  void await(int rank) { ranks_[rank].awaited.fetch_add(1, std::memory_order_relaxed); }
  void offer(int rank) { ranks_[rank].offered.fetch_add(1, std::memory_order_relaxed); }
  void took(int rank) { ranks_[rank].offered.fetch_sub(1, std::memory_order_relaxed); }
  // phase: of the ranks that send such messages; step: of the receiver.
  void heard(int rank, Phase phase, int64_t step) {
    Partner& partner = ranks_[rank];
    partner.awaited.fetch_sub(1, std::memory_order_relaxed);
    partner.step.store(step, std::memory_order_relaxed);
    partner.phase.store(static_cast<int32_t>(phase), std::memory_order_relaxed);
  }
  // Return the first rank whose message has not arrived, else the first that has not received one; -1: none.
  int missing() const;
  bool is_missing(int rank) const { return ranks_[rank].awaited.load() > 0 || ranks_[rank].offered.load() > 0; }
  // Return a line for a rank that has sent or is missing, "" for others.
  std::string where(int rank) const;

 private:
  struct Partner {
    std::atomic<int32_t> awaited{0};  // its messages that have not arrived
    std::atomic<int32_t> offered{0};  // messages that it has not received
    std::atomic<int32_t> phase{-1};   // of its last message; -1: none has arrived
    std::atomic<int64_t> step{0};
  };

  std::vector<Partner> ranks_;
};

}  // namespace mudd::dist
