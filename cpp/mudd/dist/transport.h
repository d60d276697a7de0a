// Transport: sends bytes between the ranks of a job. Collectives are built on it (collectives.h), so ranks as
// threads, MPI and the recorder run the same code.
//
// All calls but failure() come from one thread at a time; none of them blocks for longer than all ranks need to
// make the same call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace mudd::dist {

// The place of a rank. Hosts have equal rank counts; ranks of a host are adjacent.
struct RankPlace {
  int rank = 0, world = 1, node_size = 1;
  std::string host;
  std::string warning;  // a warning for the user, shown once; empty: none
};

// The parts of all ranks of a host, zeroed. `keep` owns the memory.
struct WindowMemory {
  std::vector<std::byte*> parts;
  std::vector<int64_t> bytes;
  std::shared_ptr<void> keep;
};

class Transport {
 public:
  using Request = int;

  virtual ~Transport() = default;
  // Join the job; the first call. Messages may be sent afterwards. Throws std::runtime_error with a message for
  // the user.
  virtual RankPlace open() = 0;
  // Return the place with its host, and the host's warning; the second call, which all ranks make.
  virtual RankPlace find_node() = 0;
  // Start a message; the memory must stay until test() is true. Messages with equal ends and tag arrive in
  // order. bytes: below 2^31.
  virtual Request isend(const void* data, int64_t bytes, int to, int tag) = 0;
  virtual Request irecv(void* data, int64_t bytes, int from, int tag) = 0;
  // Progress messages, between rounds of test(); return true if some have ended.
  virtual bool progress() { return false; }
  // Return true once the message has been sent or received; the request is then gone. PeerLeftError if the peer
  // has left the job.
  virtual bool test(Request request) = 0;
  // Create memory that the host shares, of which this rank owns `bytes`. All ranks of the host call it, each
  // until it returns true.
  virtual bool window(int64_t bytes, WindowMemory& made) = 0;
  // Return the bytes that windows of this host may still allocate.
  virtual int64_t shared_bytes_free() const { return std::numeric_limits<int64_t>::max(); }
  // Treat each rank as a separate host. All ranks call it, while no rank creates a window.
  virtual void split_nodes() = 0;
  // Exit the job at once with an exit code. Returns only if the ranks are threads.
  virtual void abort(int code, const std::string& message) = 0;
  // Leave the job; each rank calls it until it returns true, which is the last call.
  virtual bool close() = 0;

  // Return true if any rank has ended the job, with its message; from any thread.
  virtual bool failure(std::string* message) const = 0;
  // Return true if open() and all later calls must come from the same thread, and abort() exits the process.
  virtual bool wants_own_thread() const = 0;
};

// The name of the capsule that passes a Transport* from a separate module to _core. Change the number with this
// header: modules of different builds then reject each other.
inline constexpr const char* kTransportCapsule = "mudd_core.dist.transport.4";

}  // namespace mudd::dist
