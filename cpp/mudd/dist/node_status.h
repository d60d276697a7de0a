// NodeStatus: the first window of a host. Every rank writes its slot: its activity, whether it has failed, and
// the current operation of the host (node_channel.h). All others read.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "mudd/dist/comm.h"
#include "mudd/dist/transport.h"

namespace mudd::dist {

#define MUDD_OPERATIONS(each) \
  each(nothing) each(node_barrier) each(barrier) each(all_gather) each(broadcast) each(exchange)
enum class Operation : uint32_t { MUDD_OPERATIONS(MUDD_MEMBER) };

// The description of a rank's current operation; equal on all ranks.
struct Call {
  Operation operation = Operation::nothing;
  int32_t root = 0;
  int64_t bytes = 0;
  int32_t line = 0;  // 0 outside of debug mode
  char file[100] = {};
};

// Return the calls for a message: "all_gather(8 bytes) at run/loop/trainer.py:12".
std::string text_of(const Call& call);
// Return true if two ranks with these calls can continue.
bool same_call(const Call& a, const Call& b);

// The status of one rank; zeroed memory is a rank without a report.
struct RankSlot {
  alignas(64) std::atomic<uint64_t> arrived;  // operations among the host's ranks that this rank has started
  alignas(64) std::atomic<uint64_t> beats;    // heartbeats
  std::atomic<int64_t> step;
  std::atomic<int32_t> phase;
  std::atomic<int32_t> waiting;  // for other ranks
  std::atomic<int32_t> process;  // its id
  std::atomic<int32_t> missed;   // another rank has reported that it is gone
  std::atomic<int32_t> left;     // by close()
  alignas(
      64) std::atomic<int32_t> first_failed;  // in the first rank's slot: 1 + index of the rank that failed first
  std::atomic<int32_t> failed;
  char message[1000];
  Call calls[2];  // of even and odd operations
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int32_t>::is_always_lock_free);

class NodeStatus {
 public:
  // Return the bytes of a rank's part: the slot, and two areas for the data of an operation.
  static int64_t part_bytes();
  static constexpr int64_t kArea = 256 << 10;

  NodeStatus(WindowMemory memory, int first_rank, int node_rank, std::string host);

  int ranks() const { return static_cast<int>(memory_.parts.size()); }
  RankSlot& slot(int node_rank) const { return *reinterpret_cast<RankSlot*>(memory_.parts[node_rank]); }
  RankSlot& mine() const { return slot(node_rank_); }
  std::byte* area(int node_rank, uint64_t operation) const;

  void set_phase(Phase phase, int64_t step);
  // Store the message for the others; return false if a rank of the host had failed before.
  bool fail(const std::string& message);
  // Return the message of a rank of the host that has failed.
  bool failure(std::string* message) const;
  // Return true if the process of a rank has ended, and this is the first rank to see it. False after a
  // failure, which is already reported.
  bool newly_gone(int node_rank) const;
  // Return "rank 3 (host) in step 17 (backward)", "..., waiting for others".
  std::string where(int node_rank) const;

 private:
  std::atomic<int32_t>& first_failed() const { return slot(0).first_failed; }

  WindowMemory memory_;
  int first_rank_, node_rank_;
  std::string host_;
};

}  // namespace mudd::dist
