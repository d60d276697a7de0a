// Transport: what carries bytes between the ranks of a job. Collectives are built on it (collectives.h), so ranks
// as threads, MPI and the recorder run the same code.
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

// Where a rank is. Nodes have equally many ranks, neighbours in rank order.
struct RankPlace {
  int rank = 0, world = 1, node_size = 1;
  std::string host;
  std::string warning;  // what the user should hear once; empty: nothing
};

// Parts of all ranks of a node, zeros at first. `keep` holds the memory.
struct WindowMemory {
  std::vector<std::byte*> parts;
  std::vector<int64_t> bytes;
  std::shared_ptr<void> keep;
};

class Transport {
 public:
  using Request = int;

  virtual ~Transport() = default;
  // Joins the job; the first call. Messages may be sent then. Throws std::runtime_error with a message for the
  // user.
  virtual RankPlace open() = 0;
  // The place with its node, and the host's warning; the second call, which all ranks make.
  virtual RankPlace find_node() = 0;
  // Start a message; the memory must stay until test() is true. Messages with equal ends and tag arrive in order.
  // bytes: below 2^31.
  virtual Request isend(const void* data, int64_t bytes, int to, int tag) = 0;
  virtual Request irecv(void* data, int64_t bytes, int from, int tag) = 0;
  // Moves messages on, between rounds of test(); whether some have ended.
  virtual bool progress() { return false; }
  // True once the message has been sent or received; the request is then gone. PeerLeftError where the other end
  // has left the job.
  virtual bool test(Request request) = 0;
  // Makes memory that the node shares, of which this rank owns `bytes`. All ranks of the node call it, each again
  // until it is true.
  virtual bool window(int64_t bytes, WindowMemory& made) = 0;
  // Bytes that windows of this node may still take.
  virtual int64_t shared_bytes_free() const { return std::numeric_limits<int64_t>::max(); }
  // From now on each rank is a node of its own. All ranks call it, while nobody makes a window.
  virtual void split_nodes() = 0;
  // Ends the job at once with an exit code. Returns only where the ranks are threads.
  virtual void abort(int code, const std::string& message) = 0;
  // Leaves the job in good order; each rank calls it again until it is true, which is the last call.
  virtual bool close() = 0;

  // Whether a rank anywhere has ended the job, with its message; from any thread.
  virtual bool failure(std::string* message) const = 0;
  // Whether open() and all later calls must come from the same thread, and abort() ends the process.
  virtual bool wants_own_thread() const = 0;
};

// The name of the capsule that carries a Transport* from a module of its own to _core. Change the number with
// this header: modules of different builds then refuse each other.
inline constexpr const char* kTransportCapsule = "mudd_core.dist.transport.4";

}  // namespace mudd::dist
